"""A cluster of ours that is measured, and that gives no figure for a run in which anything went wrong.

After every run each queue must hold, on every node, as many messages as were acknowledged for it, with equal digests;
and no node may have left the ready set meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from python_tests.benchmarks.load import Loader, LoadError, Result, Shape, run_batches, run_load
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.memory import anonymous_bytes
from python_tests.harness.peers import declare
from python_tests.harness.waiting import wait_until
from recovery.reader.node_admin import AdminError, ask

FILL = 1000
"""Messages in a batch of those that only make a queue deep"""
FILLERS = 8
SETTLE_SECONDS = 60.0
DEPARTURES = ("out of the ready set", "stepping down")
DECLARED_AT_ONCE = 500


class Refused(Exception):
    """This run gives no figure; the sentence says why."""


@dataclass
class Run:
    """One run. ``mib``: of bodies; ``anonymous_mib``: of the node that has most."""

    commits: float
    messages: float
    mib: float
    p50_ms: float
    p99_ms: float
    anonymous_mib: float


class Nodes:
    """The nodes of a cluster, as they are seen from outside."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def departures(self) -> int:
        """How often a node has left the ready set, or stopped being primary."""
        logs = [path.read_text() for path in self._cluster.directory.glob("node-*/node.log")]
        return sum(log.count(line) for log in logs for line in DEPARTURES)

    def anonymous_mib(self) -> float:
        """Anonymous resident memory of the node that has most."""
        return max(anonymous_bytes(self._cluster.pid(directory.name)) for directory in self.directories()) / 2**20

    def state(self, name: str) -> str:
        """A node's state, asked for without a process of its own; ``down`` if it does not answer."""
        try:
            return str(ask(self._cluster.directory / name, "status", timeout=5.0)["state"])
        except AdminError:
            return "down"

    def directories(self) -> list[Path]:
        """Of all nodes."""
        return sorted(path.parent for path in self._cluster.directory.glob("node-*/node.toml"))

    def _statuses(self) -> list[dict[str, object]]:
        return [dict(ask(directory, "status", timeout=30.0)) for directory in self.directories()]

    def agree(self) -> bool:
        """Whether all have applied their logs up to one position. Raises AdminError."""
        return len({(status["applied"], status["position"]) for status in self._statuses()}) == 1

    def queues(self) -> list[dict[str, dict[str, object]]]:
        """What each node shows of its queues. Raises AdminError."""
        return [status["queues"] for status in self._statuses()]  # type: ignore[misc]


class Subject:
    """A context manager: the cluster ends with it. ``expected``: what each queue holds. ``nodes``: those that run."""

    def __init__(self, directory: Path, nodes: int = 3, *options: str) -> None:
        self.cluster = LocalCluster(directory, nodes, *options)
        self.nodes = Nodes(self.cluster)
        self.expected: Counter[str] = Counter()

    def __enter__(self) -> Subject:
        self.cluster.start()
        self.find_primary()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.stop()

    def find_primary(self) -> None:
        """Who is primary now: that is where load goes."""
        name = self.cluster.primary()
        assert name is not None, "no primary"
        self.primary = name
        self.port = self.cluster.ports[int(name.removeprefix("node-")) - 1]

    # -- doing

    def declare(self, names: list[str]) -> None:
        """Durable queues that hold nothing yet."""
        for at in range(0, len(names), DECLARED_AT_ONCE):
            declare(self.port, names[at : at + DECLARED_AT_ONCE], False)
        self.expected.update(dict.fromkeys(names, 0))

    def fill(self, queues: list[str], depth: int, size: int = 256) -> Result:
        """Until about ``depth`` messages wait in these queues. Raises Refused."""
        missing = depth - sum(self.expected[queue] for queue in queues)
        shape = Shape(messages=FILL, size=size, queues=queues)
        try:
            result = asyncio.run(run_batches([self.port], FILLERS, shape, max(0, -(-missing // FILL))))
        except (LoadError, OSError) as error:
            raise Refused(f"the queues could not be filled: {error}") from None
        self.expected += result.messages(shape)
        return result

    def measure(self, connections: int, shape: Shape, seconds: float, kind: type[Loader] = Loader) -> Run:
        """Load for so many seconds, and the check that nothing went wrong. Raises Refused."""
        departures = self.nodes.departures()
        try:
            result = asyncio.run(run_load([self.port], connections, shape, seconds, kind))
        except (LoadError, OSError) as error:
            raise Refused(f"the load was cut short: {error}") from None
        self.expected += result.messages(shape)
        anonymous = self.nodes.anonymous_mib()
        self.check(departures)
        return self.run_of(result, shape, anonymous)

    @staticmethod
    def run_of(result: Result, shape: Shape, anonymous: float) -> Run:
        """The figures of a load that has been checked. Raises Refused if it committed nothing."""
        if not result.latencies:
            raise Refused("nothing was committed")
        commits = len(result.latencies) / result.seconds
        return Run(
            commits,
            commits * shape.messages,
            commits * shape.messages * shape.size / 2**20,
            result.quantile(0.5) * 1000,
            result.quantile(0.99) * 1000,
            anonymous,
        )

    def kill_all(self) -> None:
        """SIGKILL of every node, then the end of the process that started them."""
        for pid in [self.cluster.pid(directory.name) for directory in self.nodes.directories()]:
            os.kill(pid, signal.SIGKILL)
        self.cluster.stop()

    # -- looking

    def log_is_whole(self) -> bool:
        """Whether the primary still has its log from the first event on."""
        return (self.cluster.directory / self.primary / "log" / f"{1:020}.log").exists()

    def copies(self, name: str) -> int:
        """How often the primary has begun to copy all queues to this node."""
        log = (self.cluster.directory / self.primary / "node.log").read_text()
        return log.count(f"backup {name} resynchronises queue by queue")

    def log_bytes(self) -> int:
        """The size of the primary's log."""
        return sum(path.stat().st_size for path in (self.cluster.directory / self.primary / "log").iterdir())

    def ready_set(self) -> list[str]:
        """The nodes of the ready set, as the primary knows it. Raises AdminError."""
        return list(ask(self.cluster.directory / self.primary, "status", timeout=5.0)["ready_set"])

    def check(self, departures: int) -> None:
        """Compare what every node holds with what was acknowledged. Raises Refused."""
        if self.nodes.departures() != departures:
            raise Refused("a node left the ready set, or stopped being primary")
        try:
            wait_until(self.nodes.agree, SETTLE_SECONDS, "one position on every node", every=0.1)
            self.compare(self.nodes.queues())
        except (TimeoutError, AdminError) as error:
            raise Refused(str(error)) from None

    def compare(self, nodes: list[dict[str, dict[str, object]]]) -> None:
        """``nodes``: what each shows of its queues. Raises Refused."""
        for queues in nodes:
            if queues != nodes[0]:
                raise Refused("two nodes at one position hold different messages")
            for name, expected in self.expected.items():
                found = queues.get(name, {}).get("messages")
                if found != expected:
                    raise Refused(f"{expected} messages were acknowledged for {name}, and {found} are there")


def pause(seconds: float = 0.5) -> None:
    """Between two runs: what the one left behind is not to be the other's."""
    time.sleep(seconds)
