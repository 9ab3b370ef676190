"""What is attacked: three nodes of ours, a RabbitMQ, or a broker that runs, with the well-behaved client beside it."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from broker_plugin.node.config import SECRET_FILE
from python_tests.harness.cluster import LocalCluster, free_base_port
from python_tests.harness.peers import RabbitMq
from python_tests.harness.stress.stores import different_digests
from python_tests.harness.waiting import wait_until
from python_tests.suites.attacks.measures import Commit, LogEnd, logged, read_commits
from python_tests.suites.attacks.target import NodePorts, Target
from recovery.secret_file import MARK, read_link_secrets

FEW_FILES = 1024
IN_STEP_SECONDS = 30.0
NODE_OPTIONS = ("--set", "log_format=json")
ROOT = Path(__file__).parents[3]


class Watched(Protocol):
    """What a broker tells of itself over one attack."""

    turns: list[tuple[float, str]]
    faults: list[str]


class Site(Protocol):
    """A broker that runs. ``queue_type``: of the well-behaved client's queue, which is replicated."""

    product: str
    queue_type: str

    @property
    def victim_port(self) -> int:
        """Where the well-behaved client connects."""
        ...

    def target(self, scale: float) -> Target:
        """What attacks are aimed at now."""
        ...

    def pids(self) -> dict[str, int]:
        """Its processes, by name."""
        ...

    def watched(self) -> AbstractContextManager[Watched]:
        """Over an attack; what is wrong is in it when the context is left."""
        ...


class _Over:
    """Implements ``Watched``."""

    def __init__(self) -> None:
        self.turns: list[tuple[float, str]] = []
        self.faults: list[str] = []


class TxhaSite:
    """A cluster with its default settings. ``few_files``: nodes may open so few that attacks can use them up."""

    product = "txha"
    queue_type = "classic"

    def __init__(self, directory: Path, few_files: bool = False) -> None:
        options = (*NODE_OPTIONS, "--http-port", str(free_base_port(3)))
        self.cluster = LocalCluster(directory / "cluster", 3, *options, files=FEW_FILES if few_files else None)

    def __enter__(self) -> TxhaSite:
        self.cluster.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.stop()

    @property
    def victim_port(self) -> int:
        """The primary's."""
        return self._amqp(self._primary())

    def target(self, scale: float) -> Target:
        """The primary, and one of its backups."""
        primary = self._primary()
        backup = self.cluster.backups()[0]
        secret = read_link_secrets(MARK + str(self.cluster.directory / SECRET_FILE))[0]
        ports = self._ports(primary), self._ports(backup)
        return Target(ports[0].amqp, scale, *ports, secret)

    def pids(self) -> dict[str, int]:
        """Of the nodes, and of their doors."""
        nodes = self._nodes()
        return {**nodes, **{f"the door of {name}": door for name, pid in nodes.items() for door in _children(pid)}}

    def _nodes(self) -> dict[str, int]:
        return {name: self.cluster.pid(name) for name in self._names()}

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Take-overs, nodes that end, digests, and what the nodes log."""
        over, pids, generation = _Over(), self._nodes(), self._generation()
        logs = {name: LogEnd(self.cluster.directory / name / "node.log") for name in self._names()}
        yield over
        for name, pid in pids.items():
            if not self.cluster.processes.runs_as(name, pid):
                over.faults.append(f"{name} has ended")
        if self._generation() != generation:
            over.faults.append(f"a take-over: generation {self._generation()} follows {generation}")
        over.faults += self._disagreements()
        for name, log in logs.items():
            found = logged(log.since())
            over.turns += found.turns
            over.faults += [f"{name} logs an error with its trace: {text[:160]}" for text in found.traces]

    def _disagreements(self) -> list[str]:
        def in_step() -> bool:
            nodes = self.cluster.status()
            return self.cluster.all_ready() and len({node.get("applied") for node in nodes}) == 1

        try:
            wait_until(in_step, IN_STEP_SECONDS, "that all nodes are ready and have applied the same", every=0.1)
        except TimeoutError as error:
            return [str(error)]
        return different_digests(self.cluster.status())

    def _generation(self) -> int:
        return max((node["generation"] for node in self.cluster.status()), default=0)

    def _names(self) -> list[str]:
        return [f"node-{number + 1}" for number in range(self.cluster.count)]

    def _primary(self) -> str:
        wait_until(self.cluster.all_ready, IN_STEP_SECONDS, "all nodes ready", every=0.1)
        name = self.cluster.primary()
        assert name is not None, "no primary"
        return name

    def _amqp(self, name: str) -> int:
        return self.cluster.ports[int(name.removeprefix("node-")) - 1]

    def _ports(self, name: str) -> NodePorts:
        directory = self.cluster.directory / name
        settings: dict[str, Any] = tomllib.loads((directory / "node.toml").read_text())
        admin: dict[str, Any] = json.loads((directory / "admin.json").read_text())
        return NodePorts(name, self._amqp(name), settings["peer"]["port"], admin["port"], admin["token"],
                         settings["http"]["port"], directory)  # fmt: skip


def _children(pid: int) -> list[int]:
    """The processes that this one has started and that run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


class RabbitSite:
    """The installed RabbitMQ: three nodes, and the victim's queue mirrored on all."""

    product = "RabbitMQ 3.10"
    queue_type = "classic"

    def __init__(self, directory: Path) -> None:
        self._broker = RabbitMq(directory / "rabbitmq", 3)
        self._pids: dict[str, int] = {}

    def __enter__(self) -> RabbitSite:
        try:
            self._broker.start()
        except BaseException:
            self._broker.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._broker.stop()

    @property
    def victim_port(self) -> int:
        """The first node's."""
        return self._broker.ports[0]

    def target(self, scale: float) -> Target:
        """The first node, where the victim's queue has its leader."""
        return Target(self._broker.ports[0], scale)

    def pids(self) -> dict[str, int]:
        """Of its nodes, which are asked once: that takes seconds."""
        self._pids = self._pids or {f"node-{number + 1}": pid for number, pid in enumerate(self._broker.pids())}
        return self._pids

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Whether every node goes on."""
        over = _Over()
        yield over
        if not self._broker.whole():
            over.faults.append("a node has ended")


class RunningSite:
    """A broker that runs already and goes on, named by its user: its processes are unknown, and so is their memory."""

    queue_type = "quorum"

    def __init__(self, product: str, port: int) -> None:
        self.product = product
        self.victim_port = port

    def __enter__(self) -> RunningSite:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def target(self, scale: float) -> Target:
        """The node that was named."""
        return Target(self.victim_port, scale)

    def pids(self) -> dict[str, int]:
        """None."""
        return {}

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Whether it still takes connections."""
        over = _Over()
        yield over
        try:
            socket.create_connection(("127.0.0.1", self.victim_port), 5).close()
        except OSError as error:
            over.faults.append(f"it takes no connections any more: {error}")


class VictimProcess:
    """The well-behaved client as a process; a context manager."""

    def __init__(self, site: Site, file: Path) -> None:
        self._file = file
        module, port = "python_tests.suites.attacks.victim", str(site.victim_port)
        self._command = [sys.executable, "-m", module, port, str(file), site.queue_type]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VictimProcess:
        self._process = subprocess.Popen(self._command, cwd=ROOT)
        try:
            wait_until(lambda: bool(self.commits()), 30, "the first commit of the well-behaved client")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def commits(self) -> list[Commit]:
        """Those that have ended."""
        return read_commits(self._file.read_text()) if self._file.exists() else []

    def answered_since(self, begin: float, seconds: float) -> bool:
        """Whether a transaction that began since then has been committed, or is within so many seconds."""
        with contextlib.suppress(TimeoutError):
            done = lambda: any(each.began >= begin and not each.error for each in self.commits())  # noqa: E731
            wait_until(done, seconds, "a commit")
            return True
        return False
