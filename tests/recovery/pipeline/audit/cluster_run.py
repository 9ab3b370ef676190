"""A run of a cluster in memory: real cores make the logs, and clients write their history, as the stress suite's do.

There is work that the history knows (queues ``orders``, ``billing``, ``stock``) and work that it does not (``feed``,
``left``, ``right``, ``plain``). There are rolled-back transactions, branches of every fate, two take-overs, a node
whose store was copied, one that was cut off and still holds a tail, and one that died early.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from python_tests.harness.history import OK, ROLLED_BACK, Attempt, History
from python_tests.harness.stress.record import Recorder
from tests.recovery.pipeline.audit import fates
from tests.recovery.pipeline.audit.stored_logs import StoredLogs
from tests.support.branch_steps import ledger_of, take_over
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import answered, begin, commit, declared, publish
from txobserver.events import Message, Removal

QUEUES = ("orders", "billing", "stock", "feed", "left", "right", "plain")
RECORDED = QUEUES[:3]


class ClusterRun:
    """``stored``: the logs of all nodes. ``tail``: the node that was cut off; ``late``: the one that lags."""

    def __init__(self) -> None:
        moments = count()
        self.history = History(clock=lambda: float(next(moments)))
        self.cluster: MemoryCluster = declared(*QUEUES, checkpoint_every=0.5)
        self._labels = count()
        self._orders = count()
        self._seen = 0
        self._live()
        self.names: dict[int, str] = {
            spec.number: name for name, spec in self.primary.core.replica.contents.configuration.queues.items()
        }
        self.numbers = {name: number for number, name in self.names.items()}
        self.stored = StoredLogs(self.cluster.disks, self.names)

    @property
    def primary(self) -> MemoryNode:
        return self.cluster.primary

    def _live(self) -> None:
        self._work()
        self._branches()
        first = self.primary
        open_attempt, _ = self._begin("worker", [], ("billing",))
        fates.decision_cut_off(self.cluster)
        take_over(self.cluster, first)
        self.history.answer(open_attempt, ROLLED_BACK)
        self.cluster.start(first.name)
        self.cluster.settled()
        fates.later(self.cluster)
        self._work()
        copied = self.cluster.start(self._copy_of_another(), wipe=True)
        self.cluster.settled()
        assert copied.disk.log_first > 1, "its log begins behind the copy"
        self._work()
        self._cut_off()
        survivors = [node for node in self.cluster.nodes.values() if node.name != self.tail]
        self._work()
        (lagging,) = [node for node in survivors if node is not self.primary]
        self.late = lagging.name
        self.cluster.kill(lagging.name)
        self.cluster.run(lambda: len(self.cluster.coordination.read().ready) == 1)
        self._work()

    def _copy_of_another(self) -> str:
        """Kill a backup, for a start with a new disk, when the primary's log no longer leads from its beginning."""
        primary = self.primary
        name = next(name for name in sorted(self.cluster.nodes) if name != primary.name)
        self.cluster.kill(name)
        self.cluster.run(lambda: len(self.cluster.coordination.read().ready) == 2)
        primary.core.log_first = primary.core.replica.tail.sequence + 1
        return name

    def _cut_off(self) -> None:
        """The primary writes what no other node gets, and does not come back."""
        primary = self.primary
        self.tail = primary.name
        self.cluster.partition(primary.name)
        self.cluster.cas_held.add(primary.name)
        for body in ("unheard", "unheard too"):
            publish(primary, "plain", body)
        attempt, observer = self._begin("worker", [], ("stock",))
        commit(primary, observer, "never")
        self.cluster.pause(0.2)
        self.history.committing(attempt)
        self.history.interrupted(attempt)
        self.cluster.run(
            lambda: any(n.state == "active" and n.name != primary.name for n in self.cluster.nodes.values())
        )
        self.cluster.kill(primary.name)

    # -- what clients do

    def _label(self) -> str:
        return f"request {next(self._labels)}"

    def _work(self) -> None:
        """Some of everything."""
        node = self.primary
        for _ in range(8):
            self._order()
        for each in range(8):
            self._transaction(f"worker{each % 2}", rolls_back=each % 4 == 3)
        self._see()
        for each in range(16):
            body = f"plain{self._label()}".replace(" ", "-")
            publish(node, "plain", body)
            publish(node, "feed", "f" + body)
            answered(self.cluster, node, f"publish f{body}")
            entry = node.host.entry("plain", body)
            if each % 2:
                self._settle("plain", body)
            node.report(lambda at=entry[0]: ledger_of(node).raise_watermark(node.host.number("plain"), at))
        for body in node.host.bodies("feed")[:14]:
            label = self._label().replace(" ", "-")
            commit(node, begin(node, {"left": ["l" + label], "right": ["r" + label]}, {"feed": [body]}), label)
            answered(self.cluster, node, label)
        for queue in ("left", "right"):
            for body in node.host.bodies(queue)[:2]:
                at, _ = node.host.entry(queue, body)
                node.report(lambda q=queue, p=at: ledger_of(node).raise_watermark(node.host.number(q), p))
                self._settle(queue, body)
        self.cluster.pause(0.2)

    def _settle(self, queue: str, body: str) -> None:
        node = self.primary
        entry = node.host.entry(queue, body)
        node.report(lambda: ledger_of(node).settle(node.host.number(queue), [entry], Removal.ACKED))

    def _order(self) -> None:
        attempt = self.history.begin("feeder", plain=True)
        message = self.history.publishing(attempt, "orders")
        self.history.committing(attempt)
        node, label = self.primary, f"publish {message}"
        sent = Message("", "", b"\x00\x80\x04some", message.encode())  # a message-id of the client library's own
        node.report(lambda: ledger_of(node).publish([node.host.number("orders")], sent, node.host.note(label)))
        answered(self.cluster, node, label)
        self.history.answer(attempt, OK)

    def _begin(self, channel: str, consumed: list[str], queues: tuple[str, ...]) -> tuple[Attempt, Any]:
        attempt = self.history.begin(channel, consumed)
        bodies: dict[str, list[str]] = {}
        for queue in queues:
            bodies.setdefault(queue, []).append(self.history.publishing(attempt, queue))
        return attempt, begin(self.primary, bodies, {"orders": consumed} if consumed else {})

    def _transaction(self, channel: str, rolls_back: bool) -> None:
        node = self.primary
        attempt, observer = self._begin(channel, [node.host.bodies("orders")[0]], ("billing", "billing", "stock"))
        attempt.on_purpose = rolls_back
        if rolls_back:
            node.report(observer.rollback)
            self.history.answer(attempt, ROLLED_BACK)
            return
        self.history.committing(attempt)
        commit(node, observer, attempt.id)
        answered(self.cluster, node, attempt.id)
        self.history.answer(attempt, OK)

    def _see(self) -> None:
        """A consumer is handed everything that waits, and settles it."""
        session = self.history.watching("billing", "reader", 1)
        for body in self.primary.host.bodies("billing"):
            self.history.saw(session, body, False)
            self._settle("billing", body)
        self.history.watched(session, True)

    def _branches(self) -> None:
        """Of every fate one; and a token."""
        fates.in_every_way(self.cluster)
        fates.in_one_phase(self.cluster)
        node = self.primary
        observer = ledger_of(node).begin(b"token")
        node.report(lambda: observer.enqueue([node.host.number("left")], text("with a token")))
        commit(node, observer, "token")
        answered(self.cluster, node, "token")
        self._settle("left", "with a token")

    def write_history(self, path: Path) -> Path:
        """The clients' history, as the stress suite writes it."""
        with Recorder(path) as recorder:
            recorder.write(self.history)
        return path
