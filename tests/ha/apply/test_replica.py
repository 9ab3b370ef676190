"""What a replica's checkpoint holds, and which frames it takes (``ha.apply.replica``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ha.apply.applied import Applied
from ha.apply.replica import GapInStream, Replica
from tests.support.messages import TEXT
from tests.txobserver.state.test_contents import Unread
from txobserver.configuration import queue_step
from txobserver.events import (
    Configure,
    DtxOpen,
    DtxPrepare,
    Event,
    GenerationStart,
    Publish,
    Purge,
    Removal,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    purge_of,
)
from txobserver.frames import encode_frame
from txobserver.ids import LAST_CONFIG_ID, Position, offset_of
from txobserver.ports.store import MemoryBase, Meta
from txobserver.table import IllegalTransition
from txobserver.xid import Xid


def test_a_checkpoint_holds_nothing_that_may_still_be_cut() -> None:
    """An event of a transaction, or a generation's beginning, that another primary's log has not: it must be as if it
    had never been, also for a node that starts with the checkpoint."""
    base = MemoryBase()
    replica = Replica(base, Meta(), {})
    for event in (GenerationStart(1, "a", ["a"]), TxOpen(7), TxEnqueue(7, 8, (1,), TEXT)):
        replica.append(1, event)
    replica.append(2, GenerationStart(2, "b", ["b"]))
    replica.append(2, TxEnqueue(7, 9, (1,), TEXT))
    replica.append(2, TxPrepare(7, 2, ["b"]))
    replica.durable = 6
    for applied, generations in ((2, [1]), (3, [1]), (4, [1, 2]), (5, [1, 2])):
        replica.apply(applied)
        base.write(replica.checkpoint())
        replica.checkpoint_written()
        loaded = base.load()
        assert loaded.meta.applied.sequence == applied
        assert [start.generation for start in loaded.meta.history] == generations
        ((tx, events),) = loaded.transactions.items()
        assert tx == 7 and [sequence for sequence, _ in events] == [each for each in (2, 3, 5) if each <= applied]


@pytest.mark.parametrize("applied", [1, 2, 3])
def test_a_checkpoint_takes_out_the_transactions_that_an_earlier_one_has(applied: int) -> None:
    """Also one whose beginning was the last event of that one; of one that it never had, nothing is to be taken out."""
    base = MemoryBase()
    replica = Replica(base, Meta(), {})
    for event in (GenerationStart(1, "a", ["a"]), TxOpen(7), TxEnqueue(7, 8, (1,), TEXT), TxDecision(7, False)):
        replica.append(1, event)
    replica.durable = 4
    replica.apply(applied)
    base.write(replica.checkpoint())
    replica.checkpoint_written()
    assert set(base.load().transactions) == ({7} if applied > 1 else set())
    replica.apply(4)
    last = replica.checkpoint()
    base.write(last)
    assert list(last.tx_ended) == ([7] if applied > 1 else []) and not base.load().transactions


class Told(Applied):
    """Of messages that left a queue."""

    def __init__(self) -> None:
        self.gone: list[tuple[int, int]] = []
        self.spared: list[int] = []

    def removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        self.gone += entries

    def purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        self.spared += spared


@pytest.mark.plain
def test_what_is_settled_twice_is_told_once() -> None:
    """The queue at the primary counts by what it is told."""
    replica = Replica(MemoryBase(), Meta(), {})
    told = Told()
    replica.contents.queues.add(1)
    events = [Publish(8, (1,), TEXT), Publish(9, (1,), TEXT), *[Settle(1, [(offset_of(1), 8)], int(Removal.ACKED))] * 2]
    for event in events:
        replica.append(1, event)
    replica.durable = len(events)
    replica.apply(len(events), told)
    assert told.gone == [(offset_of(1), 8)] and replica.contents.queues.summary(1).count == 1


def test_a_frame_of_a_lower_generation_continues_nothing() -> None:
    replica = Replica(MemoryBase(), Meta(Position(3, 9), [Position(3, 1)]), {})
    with pytest.raises(GapInStream, match=r"does not continue 3\.9"):
        replica.receive(encode_frame(2, 10, [TxOpen(1)], 0))
    assert replica.tail == (3, 9) and not replica.buffers
    replica.receive(encode_frame(4, 10, [GenerationStart(4, "b", [])], 0))
    assert replica.tail == (4, 10) and replica.history[-1] == (4, 10)


@pytest.mark.plain
def test_the_beginning_of_a_generation_is_noted_once() -> None:
    """Also by who was restored in the middle of the generation, and lacks no earlier one."""
    history = [Position(1, 1), Position(3, 5)]
    replica = Replica(MemoryBase(), Meta(Position(3, 9), list(history)), {})
    replica._generation = 0
    replica.append(3, TxOpen(7))
    assert replica.history == history
    replica.append(4, GenerationStart(4, "b", []))
    assert replica.history == [*history, Position(4, 11)]


def test_no_node_reads_what_a_purge_spares() -> None:
    """The event brings the ids, so that a node which applies it looks at no message."""
    base = Unread()
    replica = Replica(base, Meta(), {})
    step = queue_step("q", False, {})
    replica.apply(replica.append(1, Configure(1, step.operation, step.name, step.arguments)))
    for number in (11, 12, 13):
        replica.apply(replica.append(1, Publish(number, (1,), TEXT)))
    base.write(replica.checkpoint())
    replica.checkpoint_written()
    there, base.closed = replica.contents.messages.ids, True
    replica.apply(replica.append(1, purge_of(1, (1 << 63) - 1, [(offset_of(3), 12)])))
    assert there(1) == [(offset_of(3), 12)]


def filled(base: MemoryBase, *rids: int) -> Replica:
    """A queue with these messages, in a checkpoint."""
    replica = Replica(base, Meta(), {})
    step = queue_step("q", False, {})
    replica.append(1, Configure(1, step.operation, step.name, step.arguments))
    for rid in rids:
        replica.append(1, Publish(rid, (1,), TEXT))
    replica.apply(replica.tail.sequence)
    base.write(replica.checkpoint())
    replica.checkpoint_written()
    return replica


def test_a_log_of_an_earlier_version_names_no_ids_of_what_a_purge_spares() -> None:
    """Such an event stands in the log behind the last checkpoint when the node is started with a new version."""
    replica = filled(MemoryBase(), 11, 12, 13)
    frame = encode_frame(1, replica.tail.sequence + 1, [Purge(1, (1 << 63) - 1, [offset_of(3), offset_of(4)])], 0)
    replica.receive(frame)
    replica.apply(frame.last)
    assert replica.contents.messages.ids(1) == [(offset_of(3), 12), (offset_of(4), 13)]


@pytest.mark.plain
def test_a_purge_spares_what_clients_hold_beside_what_a_branch_locks() -> None:
    replica = filled(MemoryBase(), 11, 12, 13)
    told = Told()
    branch = Xid(1, b"g", b"b")
    for event in (DtxOpen(7, branch), TxDequeue(7, 1, [(offset_of(2), 11)], 1), DtxPrepare(7, 1, ["a"], 0)):
        replica.append(1, event)
    replica.apply(replica.append(1, purge_of(1, (1 << 63) - 1, [(offset_of(4), 13)])), told)
    assert replica.contents.messages.ids(1) == [(offset_of(2), 11), (offset_of(4), 13)]
    assert told.spared == [offset_of(2), offset_of(4)]


@pytest.mark.parametrize(
    "event",
    [
        Configure(1, "queue.later", "q", b""),
        Configure(LAST_CONFIG_ID + 1, "queue.delete", "q", b""),
        TxDecision(7, True),
    ],
    ids=["unknown step", "number behind the last", "decision of no transaction"],
)
@pytest.mark.parametrize("generation", [1, 2])
def test_an_event_that_cannot_be_made_takes_no_position(event: Event, generation: int) -> None:
    """What was made before stands, and what comes next stands right behind it."""
    base = MemoryBase()
    replica = Replica(base, Meta(), {})
    replica.append(1, GenerationStart(1, "a", ["a"]))
    before = replica.tail, list(replica.history), dict(replica.buffers), len(replica._unapplied)
    with pytest.raises((ValueError, IllegalTransition)):
        replica.append(generation, event)
    assert (replica.tail, replica.history, replica.buffers, len(replica._unapplied)) == before
    assert replica.append(1, TxOpen(7)) == 2


@pytest.mark.parametrize("count", [1, 3])
def test_a_frame_that_counts_other_events_than_it_holds_is_not_taken(count: int) -> None:
    """P7: the events behind it would get other sequences on this node than on the primary."""
    replica = Replica(MemoryBase(), Meta(), {})
    whole = encode_frame(1, 1, [TxOpen(5), TxOpen(6)], 0)
    with pytest.raises(GapInStream, match="it holds 2 events"):
        replica.receive(replace(whole, count=count))
    assert replica.tail.sequence == 0 and not replica.buffers
    assert len(replica.receive(whole)) == 2
