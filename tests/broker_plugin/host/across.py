"""Brokers of a cluster in memory, each across the wire from its node: every message is bytes, and arrives later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker_plugin.host.from_node import (
    Activated,
    Answer,
    BranchEnded,
    BranchPrepared,
    Deactivated,
    LeaseUntil,
    MessageEnqueued,
    MessagesArriving,
    MessagesRemoved,
    OutcomeTold,
    PageRead,
    QueuePurged,
    StepConfigured,
    WatermarkRaised,
)
from broker_plugin.host.remote_broker import RemoteBroker
from broker_plugin.host.remote_ledger import Questions, RemoteLedger
from broker_plugin.host.wire import LENGTH, MAX_MESSAGE, decode_from_broker, decode_from_node, framed, messages_in
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from txobserver.configuration import Configuration, queue_step
from txobserver.events import Message
from txobserver.outcomes import PreparedBranch
from txobserver.ports.ledger import Done, Host
from txobserver.xid import Xid


class FarBroker:
    """A broker that keeps what it is told. ``say``: sends a request's bytes to its node."""

    def __init__(self) -> None:
        self.say: Callable[[bytes], None] = lambda data: None
        self.ledger: RemoteLedger | None = None
        self.questions: Questions | None = None
        self.lease = 0.0
        self.configuration = Configuration()
        self.queues: dict[int, dict[int, tuple[int, bytes]]] = {}
        self.watermarks: dict[int, int] = {}
        self.announced: dict[int, int] = {}
        self.prepared: dict[Xid, PreparedBranch] = {}
        self.answers: dict[str, str] = {}
        self.refusals: list[str] = []
        self.closed: list[str] = []
        self.told: list[Any] = []
        self._do: dict[type[Any], Callable[[Any], None]] = {
            Activated: self._activated,
            Deactivated: self._deactivated,
            LeaseUntil: lambda m: setattr(self, "lease", m.boottime),
            StepConfigured: self._configured,
            MessageEnqueued: lambda m: self.queues[m.queue].update({m.offset: (m.rid, m.message.body)}),
            MessagesArriving: lambda m: self.announced.update({m.queue: self.announced.get(m.queue, 0) + m.messages}),
            MessagesRemoved: lambda m: [self.queues[m.queue].pop(offset, None) for offset, _ in m.entries],
            QueuePurged: self._purged,
            WatermarkRaised: lambda m: self.watermarks.update({m.queue: m.offset}),
            BranchPrepared: lambda m: self.prepared.update({m.branch.xid: m.branch}),
            BranchEnded: lambda m: self.prepared.pop(m.branch.xid),
            Answer: self._answered,
            PageRead: self._answered,
            OutcomeTold: self._answered,
        }

    def take(self, data: bytes) -> None:
        message = decode_from_node(data[LENGTH.size :])
        self.told.append(message)
        self._do[type(message)](message)

    def _activated(self, start: Activated) -> None:
        self.questions = Questions(start.activation, lambda data: self.say(data))
        self.ledger = RemoteLedger(self.questions, lambda: self.lease)
        self.configuration = start.configuration
        self.queues = {number: {} for number in start.summaries}
        self.watermarks = {number: summary.watermark for number, summary in start.summaries.items()}
        self.prepared = {branch.xid: branch for branch in start.branches}

    def _deactivated(self, message: Deactivated) -> None:
        assert self.questions is not None
        self.questions.end()
        self.closed.append(message.reason)

    def _configured(self, message: StepConfigured) -> None:
        if message.refusal:
            self.configuration.last_id = message.step.config_id
            self.refusals.append(message.refusal)
        else:
            self.configuration.apply(message.step)
        if message.deleted is not None:
            self.queues.pop(message.deleted)
        for spec in self.configuration.queues.values():
            self.queues.setdefault(spec.number, {})

    def _purged(self, message: QueuePurged) -> None:
        queue = self.queues[message.queue]
        gone = [offset for offset in queue if offset <= message.offset and offset not in message.spared]
        assert len(gone) == message.count
        for offset in gone:
            del queue[offset]

    def _answered(self, message: Any) -> None:
        assert self.questions is not None
        self.questions.answered(message)

    # -- what a test does

    def note(self, label: str) -> Done:
        """Keeps what becomes of it: ``ok``, or the error."""

        def done(error: str | None) -> None:
            assert label not in self.answers, "answered twice"
            self.answers[label] = error if error is not None else "ok"

        return done

    def number(self, name: str) -> int:
        number = self.configuration.queue_number(name)
        assert number is not None
        return number

    def bodies(self, name: str) -> list[str]:
        queue = self.queues[self.number(name)]
        return [queue[offset][1].decode() for offset in sorted(queue)]

    def entries(self, name: str) -> list[tuple[int, int]]:
        return [(offset, rid) for offset, (rid, _) in sorted(self.queues[self.number(name)].items())]


class Far:
    """The node's half, and what is under way in both directions. ``held``: nothing of the broker's arrives."""

    def __init__(self) -> None:
        self.to_broker: list[bytes] = []
        self.to_node: list[bytes] = []
        self.held = False
        self.broker = FarBroker()
        self.broker.say = self.to_node.append
        self.remote = RemoteBroker(lambda message: self.to_broker.append(framed(message)), self.to_broker.append)

    def carry(self, node: MemoryNode) -> None:
        """What is under way arrives."""
        arriving, self.to_broker[:] = list(self.to_broker), []
        for data in arriving:
            for each in messages_in(bytearray(data), MAX_MESSAGE):
                self.broker.take(LENGTH.pack(len(each)) + each)
        if not self.held:
            asked, self.to_node[:] = list(self.to_node), []
            for data in asked:
                node.report(lambda d=data: self.remote.take(decode_from_broker(d[LENGTH.size :])))  # type: ignore[misc]


class FarCluster(MemoryCluster):
    """Every broker is across the wire from its node. A node that is started anew has a new broker."""

    def make_host(self, node: MemoryNode) -> Host:
        self.fars = getattr(self, "fars", {})
        far = self.fars[node.name] = Far()
        return far.remote

    def turn(self) -> None:
        super().turn()
        for name, node in list(self.nodes.items()):
            leading = node.core.leading
            far = self.fars[name]
            far.remote.lease(leading.keeper.serves_until if leading else 0.0)
            far.carry(node)

    @property
    def far(self) -> FarBroker:
        """The broker of the active primary."""
        broker: FarBroker = self.fars[self.primary.name].broker
        return broker


def far_cluster(*queues: str) -> FarCluster:
    """Every node is ready, the primary's broker knows it, and these queues exist."""
    cluster = FarCluster()
    cluster.settled()
    cluster.run(lambda: cluster.far.ledger is not None)
    broker = cluster.far
    assert broker.ledger is not None
    for queue in queues:
        broker.ledger.configure(queue_step(queue, False, {}), broker.note(f"declare {queue}"))
    cluster.run(lambda: all(broker.answers.get(f"declare {queue}") == "ok" for queue in queues))
    return cluster


def text(body: str) -> Message:
    return Message("", "", b"", body.encode())


def answered(cluster: FarCluster, broker: FarBroker, *labels: str) -> Sequence[str]:
    """Turn until these are answered; the answers."""
    cluster.run(lambda: all(label in broker.answers for label in labels))
    return [broker.answers[label] for label in labels]
