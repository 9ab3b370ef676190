"""A copy is sent, taken and kept in slices that are bounded by bytes (``one_page_of_huge_messages``).

Bytes are counted, of each message and of what a node sends at one moment; never the time that something takes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ha.copying import HUGE, LARGE, PORTION, SLACK, Scales, joining, put
from tests.ha.memory_cluster import MemoryCluster, MemoryNode
from tests.ha.memory_host import text
from tests.ha.steps import answered, begin, commit, declared, publish, survivors_agree
from txobserver.configuration import queue_step
from txobserver.contents import Contents
from txobserver.events import Removal, Settle
from txobserver.store import Entry, MemoryBase, Meta


@pytest.mark.plain
def test_one_page_of_huge_messages() -> None:
    """No message carries more than a portion, or it carries one message; nor does a moment more than a few."""
    cluster, name = joining(*[LARGE] * 60, HUGE, *[LARGE] * 60, HUGE, HUGE)
    scales, primary = Scales(cluster), cluster.primary
    reads: list[int] = []
    contents, get = primary.core.replica.contents, primary.core.replica.contents.get

    def counted(queue: int, place: int) -> Entry | None:
        entry = get(queue, place)
        reads.append(0 if entry is None else len(entry.message.body))
        return entry

    contents.get = counted  # type: ignore[method-assign]
    cluster.start(name, wipe=True)
    most = 0
    while not cluster.all_ready():
        reads.clear()
        cluster.turn()
        most = max(most, sum(reads))
    assert scales.largest["QueueContent"] <= len(HUGE.body) + SLACK
    assert scales.kinds["QueueContent"] >= 120 * len(LARGE.body) // PORTION
    assert scales.heaviest_moment(primary.name, name) <= len(HUGE.body) + PORTION + SLACK
    assert most <= 2 * len(HUGE.body) + PORTION, "nor is more read from the store at once"
    survivors_agree(cluster)


def test_no_message_is_read_for_a_page_of_ids() -> None:
    """A page of 500 messages of 2 MiB is a list of ids at both ends: nobody reads their bodies for it."""

    class Base(MemoryBase):
        def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
            raise AssertionError("messages are read")

        def ids_page(self, queue: int, after: int, limit: int) -> list[tuple[int, int]]:
            content = self.queues.get(queue, {})
            return [(place, content[place].rid) for place in sorted(p for p in content if p > after)[:limit]]

    base = Base()
    contents = Contents(base, Meta())
    contents.add_queue(1)
    for place in range(10):
        contents.insert(1, place, place + 100, text("m"))
    changes, _ = contents.freeze()
    base.queues[1] = {place: entry for place, entry in changes[1].items() if entry is not None}
    contents.thaw()
    contents.remove(1, 3, 103)
    contents.insert(1, 10, 110, text("m"))
    assert contents.ids_page(1, 1, 4) == [(2, 102), (4, 104), (5, 105), (6, 106)]
    assert contents.ids_page(1, 8, 9) == [(9, 109), (10, 110)]
    contents.remove(1, 10, 110)
    contents.remove(1, 9, 109)
    assert contents.ids_page(1, 7, 9) == [(8, 108)]
    assert contents.summary(1).count == 8


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
    cluster.pause(0.5)
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    scales = ending(cluster, name)
    assert scales.largest["ForwardTx"] <= PORTION + SLACK and scales.kinds["ForwardTx"] > 10
    assert scales.heaviest_moment(primary.name, name) <= 2 * PORTION + SLACK
    commit(primary, observer)
    answered(cluster, primary)
    survivors_agree(cluster)
    assert cluster.nodes[name].core.replica.contents.summary(1).count == 1020


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
    core = primary.core.primary
    assert core is not None
    for number in range(3000):
        core.configure(queue_step(f"queue {number}", False, {"x-argument": "v" * 20}), lambda outcome: None)
    cluster.run(lambda: core.commit == primary.core.replica.tail.sequence > 3000)
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
    assert not core_of(primary).backlog.full and core_of(primary).backlog.gathered_bytes == 0
    survivors_agree(cluster)


def core_of(node: MemoryNode) -> Any:
    return node.core.primary


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
    assert core.abandoned


def test_a_settlement_of_many_messages_is_many_events() -> None:
    cluster = declared("q")
    primary = cluster.primary
    entries = [(place, 1) for place in range(25_000)]
    primary.report(lambda: core_of(primary).settle(1, entries, Removal.ACKED))
    cluster.pause(0.1)
    counts = [len(e.entries) for f in primary.disk.frames for e in f.events() if isinstance(e, Settle)]
    assert sum(counts) == 25_000 and max(counts) == 10_000
