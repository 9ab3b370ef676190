"""Hooks: an operator's own executables, which calls run by the name that the node's own configuration gives them.

A hook runs in a session of its own, without a shell, the node's descriptors and its environment; in ``/``; with its
output bounded and its time too: what is left of its process group then, or when it has ended, is killed. It inherits
one descriptor, of a locked file: a node that was killed in the middle of a hook starts none beside that one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from broker_plugin.node.calls.actions import ActionContext, ActionFailed
from txobserver.actions import RunHook

LOCK_FILE = "hooks.lock"
OUTPUT_KEPT = 2000
"""Bytes of the end of a hook's output, as far as it is told in an error; all else is read and forgotten."""
GLANCE = 0.02
"""Seconds between two looks whether a hook has ended that keeps its output open."""
KILL_SECONDS = 5.0
"""Within this time a process that was killed is gone, or the system has it."""
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
"""The variables of the node's environment that a hook gets."""


class Hooks:
    """NodeAction of ``hook``. ``paths``: by name; ``about``: variables that every hook gets."""

    def __init__(self, paths: Mapping[str, Path], seconds: float, directory: Path, about: Mapping[str, str]) -> None:
        self._paths = paths
        self._seconds = seconds
        self._lock = directory / LOCK_FILE
        self._about = about
        self._process: subprocess.Popen[bytes] | None = None
        self._mutex = threading.Lock()
        self._stopped = False

    def initial(self, name: str) -> msgspec.Struct:
        """A hook without arguments leaves things as they were before its first call."""
        self._path(name)
        return RunHook(None)

    async def run(self, name: str, arguments: RunHook, context: ActionContext) -> None:
        """Run it, in a thread."""
        await asyncio.to_thread(self.carry_out, name, arguments, context)

    def restore(self, name: str, arguments: RunHook) -> None:
        """What a hook has done outlives the node's process."""

    def amiss(self) -> dict[str, str]:
        """What is not so is not known of a hook."""
        return {}

    def stop(self) -> None:
        """End the one that runs: its call is run again, or undone, when the node starts."""
        with self._mutex:
            self._stopped = True
            if self._process is not None:
                _kill(self._process)

    # -- in a thread

    def carry_out(self, name: str, arguments: RunHook, context: ActionContext) -> None:
        """Run it, and wait for its end. Raises ActionFailed."""
        command = [str(self._path(name)), *(arguments.arg or ())]
        if any("\0" in word for word in command):
            raise ActionFailed(f"hook {name!r} cannot be given a NUL: leave it out of the arguments")
        lock = self._locked(name)
        try:
            process = self._begin(name, command, self._environment(name, arguments, context), lock)
            with suppress(OSError):  # it is for people: a full disk ends no hook, and no node
                os.pwrite(lock, f"{process.pid}\n".encode(), 0)
            self._see_through(name, process)
        finally:
            os.close(lock)

    def _begin(
        self, name: str, command: list[str], environment: Mapping[str, str], lock: int
    ) -> subprocess.Popen[bytes]:
        with self._mutex:
            if self._stopped:
                raise ActionFailed("the node is stopping")
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    env=environment,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
            except OSError as error:
                raise ActionFailed(f"hook {name!r}: {command[0]} cannot be run: {error.strerror}") from error
            return self._process

    def _see_through(self, name: str, process: subprocess.Popen[bytes]) -> None:
        output = _Output(process)
        deadline = time.monotonic() + self._seconds
        while not (ended := _has_ended(process)) and time.monotonic() < deadline:
            output.read(GLANCE)
        with self._mutex:
            _kill(process)
            self._process = None
        output.read(0)
        output.close()
        try:
            status = process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            raise ActionFailed(
                f"hook {name!r} was killed after {self._seconds:g} s and has not ended (process {process.pid}): look "
                "what it waits for"
            ) from None
        if self._stopped:
            raise ActionFailed("the node is stopping, and has ended the hook")
        if not ended:
            raise ActionFailed(f"hook {name!r} has not ended within hook_seconds ({self._seconds:g} s){output.said()}")
        if status:
            how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            raise ActionFailed(f"hook {name!r} has ended {how}{output.said()}")

    def _locked(self, name: str) -> int:
        """A descriptor of the lock, which the hook inherits. Raises ActionFailed where a hook still has it."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ActionFailed(f"hook {name!r} cannot be run: {self._lock}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise ActionFailed(
                f"hook {name!r} waits: a hook that was started before (process {pid}), or a process that it has left, "
                f"still has {self._lock} open; end it"
            ) from None
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        return descriptor

    def _environment(self, name: str, arguments: RunHook, context: ActionContext) -> dict[str, str]:
        passed = {variable: os.environ[variable] for variable in PASSED_ON if variable in os.environ}
        of_call = {
            "HOOK_NAME": name,
            "HOOK_CALL_ID": context.call_id,
            "HOOK_TNX_ID": str(context.tnx_id or ""),
            "HOOK_UNDO": str(int(context.undo)),
            "HOOK_INITIAL": str(int(arguments.arg is None)),
        }
        return {**passed, **self._about, **of_call}

    def _path(self, name: str) -> Path:
        found = self._paths.get(name)
        if found is None:
            raise ActionFailed(
                f"this node's configuration has no hook {name!r}: add hooks.{name} with the path of an executable, and "
                "start the node again"
            )
        return found


class _Output:
    """The end of what a process says, read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._open = True
        self._end = b""
        os.set_blocking(self._stream.fileno(), False)

    def read(self, seconds: float) -> None:
        """Wait for some, so long, and read what has come."""
        if not self._open:
            time.sleep(seconds)
            return
        poll = select.poll()
        poll.register(self._stream.fileno(), select.POLLIN)
        if poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                data = os.read(self._stream.fileno(), 1 << 16)
                self._open = bool(data)
                self._end = (self._end + data)[-OUTPUT_KEPT:]

    def close(self) -> None:
        """Take no more."""
        self._stream.close()

    def said(self) -> str:
        """Its end, in words that follow a sentence."""
        text = self._end.decode(errors="replace").strip()
        return f": {text}" if text else ", and said nothing"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """It is left to be waited for: until then its number, and that of its group, is no other's."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group of a process that has not been waited for."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
