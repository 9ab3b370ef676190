"""A host of the suite's own: a network, a name, processes and a root directory that are its alone.

Its root shows the files of this machine, and what is written there is the host's own and gone with it. So commands can
be tried word for word, with the paths that people are told to use. When the host's first process ends, all others do.
It needs root and Linux' overlay file system.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from python_tests.harness.stress.namespaces import NetworkError, lacking, run

BRIDGE = "txha-hosts"
PROGRAMS = ("ip", "nft", "nsenter", "unshare", "mount", "chroot")
MADE = "ready"
_MAKE = r"""
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t sysfs -o ro sysfs "$1/root/sys"
mount -t tmpfs tmpfs "$1/root/run"
hostname "$2"
ip link set lo up
exec chroot "$1/root" sh -c 'echo ready; exec cat'
"""


class HostFailed(Exception):
    """A command on a host has not ended as it should; one sentence says which, and what it said."""


def why_not() -> str | None:
    """What is missing for hosts on this machine, None if nothing is."""
    if (reason := lacking("hosts", PROGRAMS)) is not None:
        return reason
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "hosts take the overlay file system, which this kernel does not have"
    return None


class Host:
    """A context manager. ``name`` and ``address`` are the host's own; ``directory`` is where its files are mounted."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.directory = Path(tempfile.mkdtemp(prefix=f"txha-host-{name}-"))
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Host:
        self._holder = subprocess.Popen(
            [
                *("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child"),
                *("bash", "-c", _MAKE, "host", str(self.directory), self.name),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline().strip() != MADE:
            said = self._holder.stderr.read()
            self.__exit__()
            raise NetworkError(f"no host can be made: {said.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        """End all of its processes."""
        holder, self._holder = self._holder, None
        if holder is not None:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()
            for pipe in (holder.stdin, holder.stdout, holder.stderr):
                assert pipe is not None
                pipe.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Its first process, as this machine numbers it."""
        assert self._holder is not None, "the host runs"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        return int(children[0])

    def join(self, bridge: str) -> None:
        """Connect it with this bridge, under its address. Raises NetworkError."""
        outer = f"tx-{self.name}"[:15]
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        run("ip", "link", "set", outer, "master", bridge, "up")
        self.run(f"ip address add {self.address}/24 dev eth0 && ip link set eth0 up")

    def command(self, *words: str) -> list[str]:
        """What runs these words in it."""
        return ["nsenter", "--net", "--mount", "--uts", "--pid", "--root", "--wd", "--target", str(self.pid), *words]

    def run(self, script: str, given: str | None = None) -> str:
        """Run a script of the shell there; what it printed. Raises HostFailed where a command of it fails."""
        done = self.tried(script, given)
        if done.returncode != 0:
            raise HostFailed(
                f"{self.name}: {script.strip()!r} ended with status {done.returncode}: "
                f"{(done.stdout + done.stderr).strip()[-2000:]}"
            )
        return done.stdout

    def tried(self, script: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """The same, however it ends."""
        return subprocess.run(
            self.command("bash", "-euo", "pipefail", "-c", script),
            input=given or "",
            capture_output=True,
            text=True,
            env={**os.environ, "HOME": "/root"},
            check=False,
        )

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file there, with the directories that it needs. Raises HostFailed."""
        self.run(f'mkdir -p "$(dirname {path})" && cat > {path} && chmod {mode:o} {path}', given=text)


@contextlib.contextmanager
def hosts(names: Sequence[str], addresses: Sequence[str], gateway: str) -> Iterator[list[Host]]:
    """Hosts on one network, which know each other by name; this thread's own network has the address ``gateway``.

    To be called where the network is the suite's own (``namespaces.own_surroundings``). Raises NetworkError.
    """
    known = "".join(f"{address} {name}\n" for name, address in zip(names, addresses, strict=True))
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    try:
        run("ip", "address", "add", f"{gateway}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        with contextlib.ExitStack() as stack:
            made = [stack.enter_context(Host(*each)) for each in zip(names, addresses, strict=True)]
            for host in made:
                host.join(BRIDGE)
                host.write("/etc/hosts", f"127.0.0.1 localhost\n{known}")
            yield made
    finally:
        run("ip", "link", "delete", BRIDGE)
