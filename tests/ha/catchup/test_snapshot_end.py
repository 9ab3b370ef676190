"""The end of a snapshot: what belongs to it, and in which slices it goes (``ha.catchup.snapshot_end``)."""

from __future__ import annotations

import pytest

from ha.apply.replica import Replica
from ha.catchup.snapshot_end import Ending
from ha.messages.copying import ForwardOutcomes, ForwardTx, SnapshotEnd
from ha.messages.sizes import OVERHEAD
from ha.messages.wire import encode
from tests.support.messages import TEXT
from txobserver.events import GenerationStart, TxDecision, TxEnqueue, TxOpen
from txobserver.outcomes import Kind, Remembered
from txobserver.ports.store import MemoryBase

LIMIT = 1000


def replica_with(*remembered: Remembered) -> Replica:
    base = MemoryBase()
    replica = Replica(base, *base.load())
    for each in remembered:
        replica.contents.table.outcomes.remember(each)
    return replica


def branch(number: int, gtrid: int, bqual: int) -> Remembered:
    return Remembered(Kind.BRANCH, 1, b"%0*d" % (gtrid, number), bytes(bqual), True, number, 1000)


@pytest.mark.parametrize(("gtrid", "bqual"), [(4, 0), (64, 0), (64, 64), (30, 50)])
def test_slices_of_outcomes_are_counted_by_what_they_carry(gtrid: int, bqual: int) -> None:
    """No slice is larger than the limit, each is as full as that allows, and the size stated is enough."""
    replica = replica_with(*[branch(number, gtrid, bqual) for number in range(1, 41)])
    slices = [(p, size) for p, size in Ending(replica, 1, 7, LIMIT).parts() if isinstance(p, ForwardOutcomes)]
    each = OVERHEAD + gtrid + bqual
    assert sum(len(part.remembered) for part, _ in slices) == 40
    for part, size in slices:
        assert len(encode(part)) <= size == each * len(part.remembered) <= LIMIT
    assert all(size + each > LIMIT for _, size in slices[:-1])


def test_a_transaction_that_was_opened_behind_the_cut_is_no_part_of_it() -> None:
    """It comes with the stream."""
    replica = replica_with()
    replica.append(1, TxOpen(1))
    replica.apply(1)
    replica.append(1, TxOpen(2))
    parts = [part for part, _ in Ending(replica, 1, 7, LIMIT).parts()]
    assert [(part.tx, len(part.events)) for part in parts if isinstance(part, ForwardTx)] == [(1, 1)]
    end = parts[-1]
    assert isinstance(end, SnapshotEnd) and end.position == (1, 1) and end.transactions == [(1, 1)]


def test_a_transaction_that_ends_while_the_end_of_a_copy_is_sent() -> None:
    """``a_transaction_ends_while_the_end_of_a_copy_is_sent``: what it is let go of with is not what the copy sends."""
    replica = replica_with()
    for event in (TxOpen(1), *(TxEnqueue(1, rid, (1,), TEXT) for rid in range(5))):
        replica.append(1, event)
    replica.apply(6)
    parts = Ending(replica, 1, 7, LIMIT).parts()
    replica.append(1, TxDecision(1, False))
    replica.apply(7)
    leftovers = replica.contents.leftovers
    assert leftovers.go_on() == 5 and not replica.buffers
    forwarded = [part for part, _ in parts if isinstance(part, ForwardTx)]
    assert [len(part.events) for part in forwarded] == [6]
    assert leftovers.waiting == 6, "the copy's own references are let go of in pieces, too"


def test_a_generation_that_began_behind_the_cut_is_not_in_its_history() -> None:
    """P12: the stream brings it too. A history that told of it would claim a lineage that the snapshot has not."""
    replica = replica_with()
    replica.append(1, GenerationStart(1, "a", []))
    replica.apply(1)
    replica.append(2, GenerationStart(2, "a", []))
    *_, end = [part for part, _ in Ending(replica, 2, 7, LIMIT).parts()]
    assert isinstance(end, SnapshotEnd) and (end.position, end.history) == ((1, 1), [(1, 1)])
