"""What happens at the primary while a joiner copies its queues; and a joiner that is slow, or has much to drop."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ha.apply.applied import Applied
from ha.apply.replica import Replica
from ha.catchup.queue_replicator import QueueReplicator
from ha.catchup.replicating_subscription import PAGE
from ha.catchup.resync import Resync
from ha.effects import Effect, Send
from ha.messages.copying import (
    ForwardTx,
    Missing,
    QueueContent,
    QueueSnapshot,
    SnapshotConfiguration,
    SnapshotEnd,
    SnapshotQueues,
)
from ha.messages.wire import encode
from tests.support.copying import KIB, LARGE, PORTION, SLACK, WINDOW, Scales, joining
from tests.support.invariants import unchecked
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import answered, backups_of, declared, publish, survivors_agree
from txobserver.configuration import delete_queue_step, queue_step
from txobserver.events import Configure, Delivered, Message, Publish, Purge, Settle, TxEnqueue, TxOpen
from txobserver.ports import store
from txobserver.ports.store import IDS_PASSED, MemoryBase, Meta
from txobserver.state import messages, shown

pytestmark = pytest.mark.plain


class Primary:
    """The primary's end alone: a replica, a resync, and what was sent."""

    def __init__(self, messages: int, body: bytes = b"m", portion: int = PORTION, *events: Any) -> None:
        self.replica = Replica(MemoryBase(), Meta(), {})
        self.listener = Applied()
        step = queue_step("q", False, {})
        self.do(Configure(1, step.operation, step.name, step.arguments))
        self.body = body
        for _ in range(messages):
            self.publish()
        for event in events:
            self.do(event)
        self.sent: list[Any] = []
        self.listener = self.resync = Resync("b", 1, 1, self.replica, self._emit, portion, WINDOW)
        self.resync.store_marked(0.0)

    def _emit(self, effect: Effect) -> None:
        assert isinstance(effect, Send)
        self.sent.append(effect.message)

    def do(self, event: Any) -> None:
        self.replica.apply(self.replica.append(1, event), self.listener)

    def publish(self) -> None:
        sequence = self.replica.tail.sequence + 1
        self.do(Publish(sequence, (1,), Message("", "q", b"", self.body)))

    def parts(self, kind: type) -> list[Any]:
        return [each for each in self.sent if isinstance(each, kind)]

    def drain(self, joiner: Joiner) -> None:
        """The joiner takes everything, until the end has come."""
        now = took = 1000.0
        while joiner.ended is None:
            now += 1.0
            self.resync.progress(joiner.taken, False, now)
            if joiner.take_one():
                took = now
            assert now - took < 5, "it stands still"


class Joiner(QueueReplicator):
    """The joiner's end; what it is sent waits until it takes it. It finds whatever is not as at the primary."""

    def __init__(self, primary: Primary) -> None:
        self.replica = Replica(MemoryBase(), Meta(), {})
        self.replica.begin_resync()
        self._other = primary
        super().__init__("a", 1, self.replica, self._missing)

    def _missing(self, effect: Effect) -> None:
        assert isinstance(effect, Send) and isinstance(effect.message, Missing)
        self._other.resync.missing(effect.message, 0.0)

    def take_one(self) -> bool:
        """Take the next part, if there is one."""
        parts = self._other.sent[1:]
        if self.taken == len(parts):
            return False
        before = self.taken
        self.take(parts[before])
        while self.taken == before:
            self.work()
        return True

    def agrees(self) -> None:
        ours, theirs = self._other.replica.contents, self.replica.contents
        assert self.ended is not None and self.ended.position == self._other.replica.applied
        for number in ours.configuration.numbers():
            assert theirs.messages.ids(number) == ours.messages.ids(number)
            assert theirs.queues.summary(number) == ours.queues.summary(number)


STEPS = ["publish", "first", "any", "purge", "mark", "take", "full", "room", "time"]


@pytest.mark.parametrize("seed", range(120))
def test_a_copy_is_exact_whatever_happens_meanwhile(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages come and go, the queue is purged, and the joiner takes the next part, is full, or has room again.

    A page may end behind few messages that have gone, perhaps without an id.
    """
    chance = Random(seed)
    passed = Random(seed).choice([1, 7, IDS_PASSED])
    for module in (store, messages, shown):
        monkeypatch.setattr(module, "IDS_PASSED", passed)
    script = chance.choices(STEPS, weights=[2, 3, 3, 0.3, 1, 4, 2, 1, 3], k=60)
    primary = Primary(chance.choice([0, 30, 60, 2 * PAGE]), bytes(chance.choice([1, 5 * KIB, 5 * KIB])))
    joiner, ids, now = Joiner(primary), primary.replica.contents.messages.ids, 1.0
    for step in script:
        if step == "publish":
            for _ in range(WINDOW // (4 * KIB)):
                primary.publish()
        elif step in ("first", "any") and ids(1):
            primary.do(Settle(1, [ids(1)[0] if step == "first" else chance.choice(ids(1))], 1))
        elif step == "purge":
            spared = sorted(chance.sample(ids(1), min(3, len(ids(1)))))
            offset = chance.choice([(1 << 62), *(offset for offset, _ in ids(1))])
            rids = [rid for _, rid in spared] if len(spared) != 2 else []  # as an earlier version wrote it
            primary.do(Purge(1, offset, [offset for offset, _ in spared], rids))
        elif step == "mark" and ids(1):
            primary.do(Delivered(1, ids(1)[-1][0]))
        elif step == "take":
            joiner.take_one()
        elif step in ("full", "room"):
            primary.resync.progress(joiner.taken, step == "full", now)
        elif step == "time":
            now += 1.0
            primary.resync.go_on(now)
    applied = primary.resync.ended_at
    primary.drain(joiner)
    if applied is None:
        joiner.agrees()


@pytest.mark.parametrize("blocked", ["full", "silent"])
def test_what_waits_for_a_joiner_is_bounded(blocked: str) -> None:
    """A joiner that takes nothing for long: what it must be told is forgotten, and found again by the walk."""
    primary = Primary(20, bytes(KIB))
    page = primary.parts(QueueSnapshot)[0]
    primary.resync.missing(Missing(1, 1, 1, []), 0.0)
    if blocked == "full":
        primary.resync.progress(0, True, 0.0)
    assert page.through >= 1 << 62, "the queue is live"
    for number in range(1000):
        primary.publish()
        if number % 3 == 0:
            gone = primary.replica.contents.messages.ids(1)[:1]
            primary.do(Settle(1, gone, 1))
        primary.resync.go_on(float(number))
        assert primary.resync.held <= 2 * WINDOW + PORTION + SLACK
    assert sum(len(encode(each)) for each in primary.sent) <= WINDOW + PORTION + SLACK


def test_a_walk_that_was_turned_back_ends_with_the_same() -> None:
    primary = Primary(20, bytes(KIB))
    joiner = Joiner(primary)
    primary.resync.progress(0, True, 0.0)
    for _ in range(300):
        primary.publish()
        primary.do(Settle(1, primary.replica.contents.messages.ids(1)[:1], 1))
        primary.resync.go_on(0.5)
    primary.resync.progress(0, False, 0.5)
    primary.drain(joiner)
    joiner.agrees()


def test_what_comes_while_the_end_is_sent_stands_behind_it() -> None:
    """P7: the end is cut at one position, and goes out in many slices; nothing later is in any of them."""
    parts = [TxEnqueue(9, number, (1,), text("t")) for number in range(3)]
    primary = Primary(3, b"m", 1, TxOpen(9), *parts)
    joiner = Joiner(primary)
    for second in range(100):
        if primary.resync.ended_at is None:
            joiner.take_one()
            primary.resync.progress(joiner.taken, False, float(second))
    cut = primary.replica.applied
    held = primary.replica.contents.messages.ids(1)
    step = queue_step("s", False, {})
    primary.do(Configure(2, step.operation, step.name, step.arguments))
    primary.publish()
    primary.do(TxEnqueue(9, 3, (1,), text("t")))
    primary.do(TxOpen(10))
    primary.drain(joiner)
    (end,) = primary.parts(SnapshotEnd)
    assert end.position == cut and end.last_id == 1 and end.declared == (1, 0, 0)
    assert end.transactions == [(9, 4)] and len(primary.parts(ForwardTx)) == 4
    assert joiner.replica.contents.messages.ids(1) == held


def joined(cluster: MemoryCluster, name: str, meanwhile: Callable[[int], None]) -> None:
    """Start the joiner, and let something happen after each of the first 40 slices."""
    joiner, seen = cluster.start(name, wipe=True), 0
    for number in range(40):
        seen = joiner.core.following.backup.progress.taken if joiner.core.following else 0
        for _ in range(100):
            cluster.turn()
            if joiner.core.following and joiner.core.following.backup.progress.taken > seen:
                break
        meanwhile(number)


@pytest.mark.parametrize("what", ["purge", "delete", "anew"])
def test_a_queue_changes_wholly_between_slices(what: str) -> None:
    """It is purged, deleted, or declared anew while its messages are on their way."""
    for moment in range(0, 30, 6):
        cluster, name = joining(*[LARGE] * 30, queues=("q", "r"))
        primary = cluster.primary

        def meanwhile(number: int, primary: MemoryNode = primary, moment: int = moment) -> None:
            ledger, host = primary.host.ledger, primary.host
            if number == moment and what == "purge":
                spared = [(offset, rid) for offset, (rid, _) in sorted(host.visible[host.number("q")].items())[7:9]]
                primary.report(lambda: ledger.purge(host.number("q"), (1 << 63) - 1, spared, host.note("purge")))
            elif number == moment:
                primary.report(lambda: ledger.configure(delete_queue_step("q"), host.note("delete")))
                if what == "anew":
                    primary.report(lambda: host.declare("q "))
                    primary.report(lambda: ledger.configure(queue_step("q", False, {}), host.note("anew")))
            elif number == moment + 2:
                for queue in host.content.configuration.queues:
                    publish(primary, queue, f"{queue} after")

        joined(cluster, name, meanwhile)
        survivors_agree(cluster)
        cluster.kill(primary.name)
        cluster.run(lambda c=cluster, n=name: c.nodes[n].state == "active")  # type: ignore[misc]
        host = cluster.nodes[name].host
        queues = {queue: len(host.visible[host.number(queue)]) for queue in host.content.configuration.queues}
        assert queues == {"purge": {"q": 3, "r": 1}, "delete": {"r": 1}, "anew": {"q": 1, "q ": 1, "r": 1}}[what]


def test_a_queue_declared_while_the_joiner_marks_its_store() -> None:
    """It is walked like the others, and the walk begins all the same."""
    cluster, name = joining(text("m"))
    primary = cluster.primary
    joiner = cluster.start(name, wipe=True)
    joiner.disk_held = True
    cluster.run(lambda: joiner.core.replica.resyncing)
    primary.report(lambda: primary.host.declare("new"))
    answered(cluster, primary, "declare new")
    publish(primary, "new", "n")
    answered(cluster, primary, "publish n")
    joiner.disk_held = False
    cluster.run(cluster.all_ready, seconds=cluster.settings.prepare_timeout - 1)
    survivors_agree(cluster)
    assert sum("resynchronising queue by queue" in line for line in joiner.lines) == 1


def test_a_joiner_with_very_much_too_much() -> None:
    """What it must drop is dropped in steps: no turn takes more than so many messages out."""
    cluster = declared("q", size=2, portion_bytes=PORTION, window_bytes=WINDOW)
    (backup,) = backups_of(cluster)
    primary = cluster.primary
    for number in range(30):
        publish(primary, "q", f"m{number}")
    answered(cluster, primary, "publish m29")
    cluster.pause(0.3)
    contents = backup.core.replica.contents
    for offset in range(1, 25_001):
        contents.queues.insert(1, (1 << 40) + offset, offset, text("surplus"))
    cluster.kill(backup.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 1)  # type: ignore[union-attr]
    backup.disk.base.write(backup.core.replica.checkpoint())
    backup.disk.frames.clear()
    primary.core.log_first = primary.core.replica.tail.sequence + 100
    with unchecked():  # a store whose log begins nowhere
        joiner = cluster.start(backup.name)
    joiner.core.replica.resyncing, joiner.core.replica._whole = True, False
    contents, dropped = joiner.core.replica.contents, [0]
    remove = contents.queues.remove

    def counted(queue: int, offset: int, rid: int) -> bool:
        dropped[0] += 1
        return remove(queue, offset, rid)

    contents.queues.remove = counted  # type: ignore[method-assign]
    most = total = 0
    with unchecked():
        while not cluster.all_ready():
            dropped[0] = 0
            cluster.turn()
            most, total = max(most, dropped[0]), total + dropped[0]
        survivors_agree(cluster)
    assert total >= 25_000 and most <= 20_000, most


def test_every_kind_of_part_is_taken_into_account() -> None:
    """The joiner says how many parts it has taken, and the primary's account of what is on its way comes to nothing."""
    cluster, name = joining(*[LARGE] * 10)
    scales = Scales(cluster)
    cluster.start(name, wipe=True)
    resyncs: list[Resync] = []
    while not cluster.all_ready():
        session = cluster.primary.core.leading.backups.sessions.get(name)
        if session is not None and session.resync is not None:
            resyncs.append(session.resync)
        cluster.turn()
    assert resyncs[-1].held == 0
    kinds = (QueueSnapshot, QueueContent, SnapshotConfiguration, SnapshotQueues, SnapshotEnd)
    assert all(scales.kinds[kind.__name__] for kind in kinds)
    assert scales.kinds["Progress"] >= sum(scales.kinds[kind.__name__] for kind in kinds) - 1
