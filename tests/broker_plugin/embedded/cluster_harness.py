"""Three embedded brokers on the real cores of a whole cluster in memory, for tests that drive one broker."""

from __future__ import annotations

from itertools import count
from typing import Any

from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.harness import Harness
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from txobserver.ports.ledger import Content
from txobserver.state.applied_content import AppliedContent


class BrokerCluster(MemoryCluster):
    """A cluster whose nodes have brokers. ``due`` names those whose turn is to end."""

    def __init__(self, size: int, limits: WindowLimits, **settings: Any) -> None:
        self.due: set[str] = set()
        self._limits = limits
        super().__init__(size, **settings)

    def make_host(self, node: MemoryNode) -> EmbeddedBroker:
        names = count(1)
        return EmbeddedBroker(lambda: self.due.add(node.name), lambda: f"{node.name}{next(names)}", self._limits)

    def turn(self) -> None:
        """Brokers work before anything arrives."""
        for name in list(self.due):
            self.due.discard(name)
            if name in self.nodes:
                self.nodes[name].report(self.nodes[name].host.end_of_turn)
        super().turn()


class ClusterHarness(Harness):
    """The broker of whichever node is primary. All nodes are ready before a step ends."""

    def __init__(self, limits: WindowLimits) -> None:
        self.cluster = BrokerCluster(3, limits, checkpoint_every=0.5)
        self.cluster.settled()
        self._serve()

    def _serve(self) -> None:
        self.node = self.cluster.primary
        self.broker = self.node.host

    @property
    def content(self) -> Content:
        return AppliedContent(self.node.core.replica.contents)

    def settle(self) -> None:
        """Turns until everything that was asked has passed the commit point, and nothing is left to do."""
        self.node.report(lambda: None)
        self.cluster.run(lambda: not self.cluster.due and not self._reads() and self._all_committed())
        self.cluster.check_agreement()

    def _reads(self) -> bool:
        return bool(self.node.queue_reads or self.node.pages)

    def _all_committed(self) -> bool:
        leading = self.node.core.leading
        return leading is not None and leading.primary.point.sequence == self.node.core.replica.tail.sequence

    def progress(self, steps: int) -> None:
        """So many turns, and no more."""
        for _ in range(steps):
            self.cluster.turn()

    def crash(self, all_at_once: bool) -> None:
        """The primary's node is killed, or all are and the primary's disk is lost, which the others outlive (P2)."""
        failed, others = self.node.name, sorted(self.cluster.nodes.keys() - {self.node.name})
        self.cluster.kill(failed)
        if all_at_once:
            for name in others:
                self.cluster.kill(name)
            for name in others:
                self.cluster.start(name)
        self.cluster.run(lambda: any(node.state == "active" for node in self.cluster.nodes.values()))
        self.cluster.start(failed, wipe=all_at_once)
        self.cluster.settled()
        self._serve()
