"""An etcd of this test's own: members on loopback or on hosts of their own, with their own ports and directories."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from python_tests.harness.cluster import free_base_port
from python_tests.harness.servers.server_process import check_runs, start_server
from python_tests.harness.waiting import wait_until

HELP = "etcd is missing; on Debian: apt-get install etcd-server etcd-client (and stop the service that it starts)"
START_SECONDS = 60.0


class Hosts:
    """Where members run and listen. Here: all on loopback, each on ports of its own."""

    def __init__(self, count: int) -> None:
        base = free_base_port(2 * count)
        self.ports = list(range(base, base + count))
        self.peers = list(range(base + count, base + 2 * count))

    def known_at(self, member: int) -> str:
        """The address at which nodes and other members reach it."""
        return "127.0.0.1"

    def listens_at(self, member: int) -> Sequence[str]:
        """Every address at which it listens; operators reach it at the first."""
        return ["127.0.0.1"]

    def command(self, member: int) -> list[str]:
        """What to put before the command that runs it."""
        return []


class EtcdServers:
    """A context manager: all members and their files end with it. Members are numbered from 0.

    ``tls``: options that each member is started with, so that clients speak TLS; ``control``: those of ``etcdctl``.
    ``hosts``: None for loopback. ``directory``: None for one that goes with the members.
    """

    def __init__(
        self,
        count: int = 1,
        tls: Sequence[str] = (),
        control: Sequence[str] = (),
        hosts: Hosts | None = None,
        directory: Path | None = None,
    ) -> None:
        if (missing := why_not()) is not None:
            raise RuntimeError(missing)
        self._hosts = hosts or Hosts(count)
        self.ports = self._hosts.ports
        self._kept = directory is not None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="txha-etcd-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self._tls = tls
        self._control = list(control)
        self._servers: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> EtcdServers:
        try:
            self.start(*range(len(self.ports)))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill(*list(self._servers))
        if not self._kept:
            shutil.rmtree(self.directory)

    def address(self, prefix: str = "txha", options: str = "") -> str:
        """As ``coordination`` names it."""
        members = ",".join(f"{self._hosts.known_at(number)}:{port}" for number, port in enumerate(self.ports))
        return f"etcd://{members}/{prefix}{options}"

    def start(self, *members: int) -> None:
        """Start these, and wait until each of them has a leader, if a majority runs. Raises RuntimeError."""
        self.launch(*members)
        if 2 * len(self._servers) > len(self.ports):
            for member in members:
                wait_until(lambda one=member: self._answers(one), START_SECONDS, f"etcd member {member}")  # type: ignore[misc]

    def launch(self, *members: int) -> None:
        """Start these, and wait for nothing."""
        for member in members:
            self._servers[member] = start_server(self._command(member), self.directory / f"{member}.log", None)

    def all_answer(self) -> bool:
        """Whether each member runs and answers a reading that a majority has confirmed. Raises RuntimeError."""
        return not self.missing() and all(map(self._answers, list(self._servers)))

    def pid(self, member: int) -> int:
        """Its process. Raises LookupError if it does not run."""
        return self._servers[member].pid

    def missing(self) -> list[int]:
        """The members that do not run."""
        return [member for member in range(len(self.ports)) if member not in self._servers]

    def kill(self, *members: int) -> None:
        """SIGKILL, and wait for the end."""
        for member in members:
            server = self._servers.pop(member)
            server.kill()
            server.wait()

    def wipe(self) -> None:
        """Remove what they hold; none of them runs."""
        for member in range(len(self.ports)):
            shutil.rmtree(self._data(member))

    @contextmanager
    def frozen(self, member: int) -> Iterator[None]:
        """SIGSTOP, and SIGCONT in the end."""
        self._servers[member].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._servers[member].send_signal(signal.SIGCONT)

    def leader(self) -> int:
        """The member that leads. Raises RuntimeError if none says so."""
        for member in list(self._servers):
            status = self._status(member)
            if status is not None and status["leader"] == status["header"]["member_id"]:
                return member
        raise RuntimeError("no member of etcd leads")

    def move_leader(self, member: int) -> None:
        """Let this member lead from now on. Raises RuntimeError if etcd refuses, or the member says nothing."""
        leader = self.leader()
        if leader == member:
            return
        status = self._status(member)
        if status is None:
            raise RuntimeError(f"member {member} of etcd does not answer")
        done = self.control(leader, "move-leader", f"{status['header']['member_id']:x}")
        if done.returncode != 0:
            raise RuntimeError(f"etcd does not move its leader: {done.stderr.strip()}")

    def _status(self, member: int) -> dict[str, Any] | None:
        """What it says of itself; None if it does not answer, frozen for instance."""
        found = self.control(member, "endpoint", "status", "-w", "json")
        if found.returncode != 0:
            return None
        (said,) = json.loads(found.stdout)
        status: dict[str, Any] = said["Status"]
        return status

    def control(self, member: int, *words: str) -> subprocess.CompletedProcess[str]:
        """``etcdctl``, which asks this member."""
        scheme = "https" if self._tls else "http"
        endpoint = f"{scheme}://{self._hosts.listens_at(member)[0]}:{self.ports[member]}"
        command = ["etcdctl", f"--endpoints={endpoint}", *self._control, *words]
        return subprocess.run(
            command, env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True, check=False
        )

    def _answers(self, member: int) -> bool:
        check_runs(self._servers[member], "etcd", self.directory / f"{member}.log")
        return self.control(member, "--command-timeout=2s", "get", "/").returncode == 0

    def _data(self, member: int) -> Path:
        return self.directory / f"{member}"

    def _command(self, member: int) -> list[str]:
        scheme = "https" if self._tls else "http"
        port, peers, known = self.ports[member], self._hosts.peers, self._hosts.known_at
        listens = self._hosts.listens_at(member)
        cluster = ",".join(f"m{number}=http://{known(number)}:{port}" for number, port in enumerate(peers))
        return [
            *(*self._hosts.command(member), "etcd", "--name", f"m{member}", "--data-dir", str(self._data(member))),
            *("--listen-client-urls", ",".join(f"{scheme}://{host}:{port}" for host in listens)),
            *("--advertise-client-urls", f"{scheme}://{known(member)}:{port}"),
            *("--listen-peer-urls", ",".join(f"http://{host}:{peers[member]}" for host in listens)),
            *("--initial-advertise-peer-urls", f"http://{known(member)}:{peers[member]}"),
            *("--initial-cluster", cluster, "--initial-cluster-token", self.directory.name),
            *("--logger", "zap", "--log-level", "warn", *self._tls),
        ]


def why_not() -> str | None:
    """What is missing for an etcd on this machine; None if nothing is."""
    return HELP if shutil.which("etcd") is None or shutil.which("etcdctl") is None else None
