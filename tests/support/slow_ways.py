"""A MemoryCluster in which a link has a bandwidth and a disk takes its time, and a load that clients put on it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ha.effects import Truncate
from ha.messages.beats import BEATS_FEATURE
from tests.support.memory_cluster import TURN, MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import declare

Way = tuple[str, str]


class SlowNode(MemoryNode):
    """``sync_seconds`` of the cluster: of the disks of these nodes."""

    cluster: SlowCluster
    synced_at = 0.0

    def do_writes(self) -> None:
        """One group at a time; a cut of nothing costs nothing."""
        cuts = all(isinstance(each, Truncate) and self.disk.durable <= each.last for each in self.writes)
        seconds = self.cluster.sync_seconds.get(self.name, 0.0)
        if not self.writes or (cuts and not self.synced_at) or not seconds:
            super().do_writes()
            return
        if not self.synced_at:
            self.synced_at, self._group = self.cluster.now + seconds, len(self.writes)
        if self.cluster.now >= self.synced_at:
            later, self.writes = self.writes[self._group :], self.writes[: self._group]
            super().do_writes()
            self.writes, self.synced_at = self.writes + later, 0.0


class SlowCluster(MemoryCluster):
    """``rates``: bytes a second that go one way; on all others there is no end of them."""

    features = frozenset({BEATS_FEATURE})
    kind = SlowNode

    def __init__(self, size: int = 3, **settings: Any) -> None:
        self.rates: dict[Way, float] = {}
        self.sync_seconds: dict[str, float] = {}
        self._on_the_way: dict[Way, list[bytes]] = defaultdict(list)
        self._sent: dict[Way, float] = defaultdict(float)
        super().__init__(size, **settings)

    def forget(self, *names: str) -> None:
        """What is on its way from or to these is lost."""
        for way in [way for way in self._on_the_way if set(way) & set(names)]:
            del self._on_the_way[way]

    def kill(self, name: str) -> None:
        """As ever."""
        self.forget(name)
        super().kill(name)

    def partition(self, *names: str) -> None:
        """As ever."""
        self.forget(*names)
        super().partition(*names)

    def send(self, source: str, target: str, message: Any) -> None:
        """As ever, at the rate of the way."""
        before = len(self.wire)
        super().send(source, target, message)
        if (source, target) in self.rates:
            self._on_the_way[source, target] += [data for _, _, data in self.wire[before:]]
            del self.wire[before:]

    def turn(self) -> None:
        """As ever. Bytes of a message that is not whole yet are heard as well."""
        for (source, target), waiting in self._on_the_way.items():
            if not waiting or target not in self.nodes:
                continue
            node = self.nodes[target]
            node.report(lambda n=node, s=source: n.core.on_heard({s}))  # type: ignore[misc]
            self._sent[source, target] += self.rates[source, target] * TURN
            while waiting and self._sent[source, target] >= len(waiting[0]):
                self._sent[source, target] -= len(waiting[0])
                self.wire.append((source, target, waiting.pop(0)))
            if not waiting:
                self._sent[source, target] = 0.0
        super().turn()


class Load:
    """A message of ``size`` bytes each ``every`` seconds, while the primary reads clients. ``longest``: seconds in
    which no publish was answered, at most; ``waited``: those that an answer took, of each."""

    def __init__(self, cluster: SlowCluster, size: int, every: float) -> None:
        self.size, self.every = size, every
        self.longest = 0.0
        self.waited: list[float] = []
        self._cluster = cluster
        self._primary = cluster.primary
        self._due = self._answered = cluster.now

    def run(self, seconds: float) -> None:
        """So long."""
        end = self._cluster.now + seconds
        while self._cluster.now < end:
            self.turn()

    def turn(self) -> None:
        """Of the cluster."""
        leading, now = self._primary.core.leading, self._cluster.now
        assert leading is not None
        if now >= self._due and not leading.primary.congested:
            self._due = max(self._due + self.every, now)
            host, body = self._primary.host, text("x" * self.size)
            assert host.ledger is not None
            ledger = host.ledger
            self._primary.report(lambda: ledger.publish([host.number("q")], body, lambda error: self._done(now)))
        self._cluster.turn()
        self.longest = max(self.longest, self._cluster.now - self._answered)

    def _done(self, asked: float) -> None:
        self.waited.append(self._cluster.now - asked)
        self._answered = self._cluster.now


def slow_cluster(**settings: Any) -> SlowCluster:
    """In which every node is ready, and the queue q exists."""
    cluster = SlowCluster(3, **settings)
    declare(cluster.settled(), "q")
    return cluster
