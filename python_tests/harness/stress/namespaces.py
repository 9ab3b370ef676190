"""Network namespaces of Linux: a network of the suite's own, and one namespace for each node.

Nothing here has a name in the system. A namespace lives as long as a process in it, and those that stand for nodes
end when their standard input does: so all of it is gone when the suite is, however that ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
PROGRAMS = ("ip", "nft", "nsenter", "unshare", "mount", "umount")

T = TypeVar("T")


class NetworkError(Exception):
    """The network cannot be made or changed; one sentence says why."""


def run(*command: str, text: str | None = None) -> str:
    """Run a program of the system; returns what it printed. Raises NetworkError."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NetworkError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise NetworkError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def lacking(what: str, programs: Sequence[str]) -> str | None:
    """Why there is no ``what``, which takes root and these programs; None if all is there."""
    if os.geteuid() != 0:
        return f"{what} take root"
    if missing := [program for program in programs if shutil.which(program) is None]:
        return f"{what} take {', '.join(missing)}; on Debian: apt-get install iproute2 nftables util-linux"
    return None


def why_not() -> str | None:
    """What is missing for namespaces on this machine, None if nothing is."""
    if (reason := lacking("network namespaces", PROGRAMS)) is not None:
        return reason
    done = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "this machine allows no new network namespaces"


def own_surroundings() -> None:
    """Give the calling thread, and whatever it starts from now on, a network and a table of mounts of their own.

    Raises NetworkError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise NetworkError(f"no network of our own: {os.strerror(ctypes.get_errno())}")
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")


@contextlib.contextmanager
def inside(pid: int) -> Iterator[None]:
    """The calling thread is in the network of that process: a socket made now stays there. Raises NetworkError."""
    libc = ctypes.CDLL(None, use_errno=True)
    back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            if libc.setns(there, CLONE_NEWNET) != 0:
                raise NetworkError(f"cannot enter the network of {pid}: {os.strerror(ctypes.get_errno())}")
        finally:
            os.close(there)
        try:
            yield
        finally:
            libc.setns(back, CLONE_NEWNET)
    finally:
        os.close(back)


class Namespace:
    """A network namespace, kept by a process that does nothing."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline().strip() != "ready":
            self.close()
            raise NetworkError("a network namespace cannot be made")

    @property
    def pid(self) -> int:
        """A process in it."""
        return self._holder.pid

    def command(self) -> list[str]:
        """What to put before a command that shall run in it; the process stays the same."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net"]

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a program in it. Raises NetworkError."""
        return run(*self.command(), *command, text=text)

    def call(self, function: Callable[[], T]) -> T:
        """Call in it, from a thread that is there for this alone. Raises what the function raises."""
        result: list[T] = []
        errors: list[BaseException] = []

        def enter() -> None:
            try:
                with inside(self.pid):
                    result.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return result[0]

    def close(self) -> None:
        """Let it go."""
        assert self._holder.stdin is not None and self._holder.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.close()
        self._holder.stdout.close()
        self._holder.wait()
