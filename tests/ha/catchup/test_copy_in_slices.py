"""A copy is sent, taken and kept in slices that are bounded by bytes (``one_page_of_huge_messages``).

Bytes are counted, of each message and of what a node sends at one moment; never the time that something takes.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest

from ha.apply.replica import Replica
from ha.catchup.queue_replicator import QueueReplicator
from ha.catchup.replicating_subscription import ReplicatingSubscription
from ha.messages.copying import QueueChange, QueueSnapshot
from tests.support.copying import HUGE, LARGE, PORTION, SLACK, Scales, joining, put
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import answered, begin, commit, declared, publish, survivors_agree
from txobserver.configuration import queue_step
from txobserver.events import Message, Removal, Settle
from txobserver.ports.store import END, IDS_BYTES, Entry, Ids, MemoryBase, Meta, QueueSummary
from txobserver.state.contents import Contents


@pytest.mark.plain
def test_one_page_of_huge_messages() -> None:
    """No message carries more than a portion, or it carries one message; nor does a moment more than a few."""
    cluster, name = joining(*[LARGE] * 60, HUGE, *[LARGE] * 60, HUGE, HUGE)
    scales, primary = Scales(cluster), cluster.primary
    reads: list[int] = []
    contents, get = primary.core.replica.contents, primary.core.replica.contents.messages.get

    def counted(queue: int, offset: int) -> Entry | None:
        entry = get(queue, offset)
        reads.append(0 if entry is None else len(entry.message.body))
        return entry

    contents.messages.get = counted  # type: ignore[method-assign]
    cluster.start(name, wipe=True)
    most = 0
    while not cluster.all_ready():
        reads.clear()
        cluster.turn()
        most = max(most, sum(reads))
    assert scales.largest["QueueContent"] <= len(HUGE.body) + SLACK
    assert scales.kinds["QueueContent"] >= 120 * len(LARGE.body) // PORTION
    assert scales.heaviest_moment(primary.name, name) <= len(HUGE.body) + PORTION + SLACK
    assert most <= len(HUGE.body) + PORTION, "nor is more read from the store at once"
    survivors_agree(cluster)


def test_no_message_is_read_for_a_page_of_ids() -> None:
    """A page of 500 messages of 2 MiB is a list of ids at both ends: neither reads their bodies for it."""

    class Base(MemoryBase):
        def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
            raise AssertionError("messages are read")

        def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
            content = self.queues.get(queue, {})
            there = [(at, content[at].rid) for at in sorted(content) if at > after and at not in hidden]
            return Ids(there[:limit], there[limit - 1][0] if len(there) > limit else END)

    base = Base()
    contents = Contents(base, Meta())
    contents.queues.add(1)
    for offset in range(10):
        contents.queues.insert(1, offset, offset + 100, text("m"))
    changes, _ = contents.freeze()
    base.queues[1] = {offset: entry for offset, entry in changes[1].items() if entry is not None}
    contents.thaw()
    contents.queues.remove(1, 3, 103)
    contents.queues.insert(1, 10, 110, text("m"))
    assert contents.messages.ids_page(1, 1, 4) == ([(2, 102), (4, 104), (5, 105), (6, 106)], 6)
    assert contents.messages.ids_page(1, 8, 9) == ([(9, 109), (10, 110)], END)
    contents.queues.remove(1, 10, 110)
    contents.queues.remove(1, 9, 109)
    assert contents.messages.ids_page(1, 7, 9) == ([(8, 108)], END)
    assert contents.queues.summary(1).count == 8


class Counting(MemoryBase):
    """A base that knows how many bytes of messages were looked at, and reads none."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[int] = []

    def get(self, queue: int, offset: int) -> Entry | None:
        raise AssertionError("a message is read")

    def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
        found = super().ids_page(queue, after, limit, hidden)
        self.looked_at.append(sum(len(self.queues[queue][offset].message.body) for offset, _ in found.entries))
        return found


def large_queue(messages: int, size: int) -> tuple[Contents, Counting]:
    """A queue of so many messages of so many bytes, all of which a checkpoint has brought into the base."""
    base = Counting()
    contents = Contents(base, Meta())
    contents.queues.add(1)
    for offset in range(messages):
        contents.queues.insert(1, offset, offset + 100, Message("", "q", b"", bytes(size)))
    changes, _ = contents.freeze()
    base.queues[1] = {offset: entry for offset, entry in changes[1].items() if entry is not None}
    contents.thaw()
    return contents, base


def test_one_joiner_topples_every_primary() -> None:
    """LMDB's binding touches each page of a value that it returns, so a page of ids is bounded by bytes, too: one of
    200 messages of 16 MiB that were not in memory held the event loop past the lease."""
    size = 3 << 20
    contents, base = large_queue(10, size)
    contents.queues.remove(1, 4, 104)
    contents.queues.insert(1, 10, 110, text("not in the base"))
    walk = ReplicatingSubscription(1)
    found = []
    while not walk.live:
        found += walk.next_page(contents)[2]
    assert found == [(offset, offset + 100) for offset in range(11) if offset != 4]
    assert len(base.looked_at) > 2 and max(base.looked_at) < IDS_BYTES + size
    assert sum(base.looked_at) == 9 * size, "what has left the queue is not looked at"


def test_a_joiner_compares_large_messages_a_few_at_a_time() -> None:
    """The same at the other end: it must not be silent for so long that it is given up, and begins anew for ever."""
    contents, base = large_queue(10, 3 << 20)
    sent: list[Any] = []
    replica = Replica(base, Meta(), {})
    replica.contents = contents
    replicator = QueueReplicator("n1", 7, replica, sent.append)
    page = QueueSnapshot(1, 7, 1, -1, 8, [(offset, offset + 100) for offset in range(9) if offset != 5] + [(99, 199)])
    steps = 1
    while not replicator.snapshot(page):
        steps += 1
    assert steps > 2 and max(base.looked_at) < IDS_BYTES + (3 << 20)
    assert [offset for offset, _ in contents.messages.ids(1)] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert sent[-1].message.offsets == [99]


@pytest.mark.plain
def test_a_joiner_compares_on_behind_what_has_gone_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of its own that holds nothing is not its last: what stands behind, and is gone at the primary, goes."""
    for module in ("txobserver.state.messages", "txobserver.ports.store"):
        monkeypatch.setattr(f"{module}.IDS_PASSED", 10)
    contents, base = large_queue(100, 10)
    for offset in range(60):
        contents.queues.remove(1, offset, offset + 100)
    replica, sent = Replica(base, Meta(), {}), list[Any]()
    replica.contents = contents
    replicator = QueueReplicator("n1", 7, replica, sent.append)
    page = QueueSnapshot(1, 7, 1, -1, END, [(offset, offset + 100) for offset in range(50, 80)])
    steps = 1
    while not replicator.snapshot(page):
        steps += 1
    assert steps > 60 // 11 and [offset for offset, _ in contents.messages.ids(1)] == [*range(60, 80)]
    assert sent[-1].message.offsets == [*range(50, 60)]


def test_what_leaves_the_queue_live_is_not_read_by_the_joiner() -> None:
    """However large it is: the primary says which messages those were."""
    contents, base = large_queue(3, 1000)
    replica = Replica(base, Meta(), {})
    replica.contents = contents
    replicator = QueueReplicator("n1", 7, replica, lambda effect: None)
    replicator.change(QueueChange(1, 7, 1, [(5, 105, text("live"))], [(0, 100), (2, 102), (9, 109)]))
    assert contents.messages.ids(1) == [(1, 101), (5, 105)] and base.looked_at == []
    assert contents.queues.summary(1) == large_summary((1, 101), (5, 105))


def large_summary(*entries: tuple[int, int]) -> QueueSummary:
    summary = QueueSummary()
    for entry in entries:
        summary.put(*entry)
    return summary


def test_live_changes_come_in_slices() -> None:
    """What is published in one moment while a joiner copies is not sent as one message."""
    cluster, name = joining(*[LARGE] * 20)
    scales, primary = Scales(cluster), cluster.primary
    cluster.start(name, wipe=True)
    cluster.run(lambda: scales.kinds["QueueContent"] > 2)
    for _ in range(5):
        for _ in range(8):
            put(primary, "q", LARGE)
        cluster.turn()
    survivors_agree(cluster)
    assert scales.largest["QueueChange"] <= PORTION + SLACK


def ending(cluster: MemoryCluster, name: str) -> Scales:
    scales = Scales(cluster)
    cluster.start(name, wipe=True)
    cluster.run(cluster.all_ready)
    return scales


def test_an_open_transaction_comes_in_slices() -> None:
    """One that holds far more than a portion; and its decision takes all of it up at the joiner."""
    cluster, name = joining()
    primary = cluster.primary
    observer = begin(primary, {"q": [f"m{n}" for n in range(1000)]})
    for _ in range(20):
        primary.report(lambda: observer.enqueue([primary.host.number("q")], LARGE))
    replica = primary.core.replica
    cluster.run(lambda: replica.applied == replica.tail)
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    scales = ending(cluster, name)
    assert scales.largest["ForwardTx"] <= PORTION + SLACK and scales.kinds["ForwardTx"] > 10
    assert scales.heaviest_moment(primary.name, name) <= 2 * PORTION + SLACK
    commit(primary, observer)
    answered(cluster, primary)
    survivors_agree(cluster)
    assert cluster.nodes[name].core.replica.contents.queues.summary(1).count == 1020


def test_outcomes_come_in_slices() -> None:
    cluster, name = joining()
    primary = cluster.primary
    assert primary.host.ledger is not None
    for number in range(400):
        observer = primary.host.ledger.begin(b"token %d" % number)
        primary.report(lambda o=observer: o.enqueue([primary.host.number("q")], text("m")))  # type: ignore[misc]
        commit(primary, observer, f"commit {number}")
    answered(cluster, primary, "commit 399")
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    scales = ending(cluster, name)
    assert scales.largest["ForwardOutcomes"] <= PORTION + SLACK and scales.kinds["ForwardOutcomes"] > 2
    survivors_agree(cluster)
    outcomes = cluster.nodes[name].core.replica.contents.table.outcomes
    assert len(outcomes.all()) == 400


def test_many_queues_come_in_slices() -> None:
    """The end of a snapshot with very many queues: neither their declarations nor their digests are one message."""
    cluster, name = joining()
    primary = cluster.primary
    core = primary.core.leading.primary
    assert core is not None
    for number in range(3000):
        core.ledger.configure(queue_step(f"queue {number}", False, {"x-argument": "v" * 20}), lambda outcome: None)
    cluster.run(lambda: core.point.sequence == primary.core.replica.tail.sequence > 3000)
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    scales = ending(cluster, name)
    assert scales.largest["SnapshotConfiguration"] <= PORTION + SLACK
    assert scales.largest["SnapshotQueues"] <= PORTION + SLACK
    assert scales.largest["SnapshotEnd"] <= SLACK and scales.largest["ResyncBegin"] <= SLACK
    assert scales.heaviest_moment(primary.name, name) <= 2 * PORTION + SLACK
    survivors_agree(cluster)
    ours, theirs = (cluster.nodes[n].core.replica.contents.configuration for n in (primary.name, name))
    assert ours == theirs and len(theirs.queues) == 3001


def test_frames_are_cut_by_bytes() -> None:
    """What gathers while the disk is slow makes several frames; a larger event makes one by itself."""
    cluster = declared("q", size=2, frame_bytes=PORTION)
    scales, primary = Scales(cluster), cluster.primary
    primary.disk_held = True
    for _ in range(30):
        put(primary, "q", LARGE)
    put(primary, "q", HUGE)
    put(primary, "q", LARGE)
    primary.disk_held = False
    publish(primary, "q", "last")
    answered(cluster, primary, "publish last")
    assert scales.largest["Entries"] <= len(HUGE.body) + SLACK
    assert max(len(f.data) for f in primary.disk.frames if f.count > 1) <= PORTION + SLACK
    assert not core_of(primary).writer.backlog.full and core_of(primary).writer.backlog.gathered_bytes == 0
    survivors_agree(cluster)


def core_of(node: MemoryNode) -> Any:
    return node.core.leading.primary


def test_a_group_that_was_cut_is_forgotten_as_a_whole() -> None:
    """A primary that steps down with half of a group written keeps nothing of the other half."""
    cluster = declared("q", size=2, frame_bytes=PORTION)
    primary = cluster.primary
    written = primary.core.replica.tail.sequence
    primary.disk_held = True
    for _ in range(30):
        put(primary, "q", LARGE)
    core = core_of(primary)
    assert primary.core.replica.tail.sequence == written + 30
    primary.report(lambda: primary.core._step_down("a test"))
    frames = [w.frame for w in primary.writes if hasattr(w, "frame")]
    assert primary.core.replica.tail.sequence == frames[-1].last < written + 30
    assert core.writer.abandoned


def test_a_settlement_of_many_messages_is_many_events() -> None:
    cluster = declared("q")
    primary = cluster.primary
    entries = [(offset, 1) for offset in range(25_000)]
    primary.report(lambda: core_of(primary).ledger.settle(1, entries, Removal.ACKED))
    cluster.pause(0.1)
    counts = [len(e.entries) for f in primary.disk.frames for e in f.events() if isinstance(e, Settle)]
    assert sum(counts) == 25_000 and max(counts) == 1000
