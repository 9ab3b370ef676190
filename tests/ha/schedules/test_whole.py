"""A store is whole when its disk holds the whole snapshot, and not when its memory does; before, it never stands."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ha.apply.replica import Replica
from tests.ha.schedules.test_record import copied_and_not_saved, promote
from tests.support.messages import TEXT
from txobserver.access import Access
from txobserver.calls import KeptCalls
from txobserver.events import GenerationStart, TxEnqueue, TxEvent, TxOpen
from txobserver.ids import Position
from txobserver.ports.store import MemoryBase, Meta


def test_a_checkpoint_of_the_middle_of_a_copy_does_not_make_the_store_whole() -> None:
    """It says *resyncing*, and is done when the snapshot is whole in memory: the disk still says resyncing then."""
    replica = Replica(MemoryBase(), Meta(), {})
    replica.append(1, GenerationStart(1, "a", []))
    replica.durable = 1
    replica.apply(1)
    replica.begin_resync()
    assert replica.checkpoint().meta.resyncing
    outcomes = replica.contents.table.outcomes.meta
    replica.end_resync(
        Position(1, 5), [Position(1, 1)], replica.contents.configuration, {}, outcomes, [], KeptCalls(), Access()
    )
    replica.checkpoint_written()
    assert not replica.whole
    assert not replica.checkpoint().meta.resyncing
    replica.checkpoint_written()
    assert replica.whole


@pytest.mark.parametrize("former", [0, 90])
def test_the_checkpoint_of_a_copy_holds_open_transactions_from_their_first_event(former: int) -> None:
    """Also where the former state stood behind that event: what was there of it has gone with the former state."""
    events: list[tuple[int, TxEvent]] = [(40, TxOpen(7)), (41, TxEnqueue(7, 8, (1,), TEXT))]
    base = MemoryBase()
    if former:
        base.transactions = {7: dict(events), 8: {50: TxOpen(8)}}
    replica = Replica(base, Meta(Position(1, former), [Position(1, 1)]), base.load().transactions)
    replica.contents.queues.add(5)
    replica.contents.queues.insert(5, 3, 4, TEXT)
    replica.begin_resync()
    for _ in range(2):
        base.write(replica.checkpoint())
        replica.checkpoint_written()
    outcomes, transactions = replica.contents.table.outcomes.meta, {7: list(events), 9: [(60, TxOpen(9))]}
    configuration = replica.contents.configuration
    replica.end_resync(
        Position(2, 120),
        [Position(1, 1), Position(2, 95)],
        configuration,
        transactions,
        outcomes,
        [],
        KeptCalls(),
        Access(),
    )
    base.write(replica.checkpoint())
    assert not base.queues.get(5) and not base.meta.summaries, "a queue that the primary does not have"
    assert base.load().transactions == transactions
    assert replica.durable == 120, "what the copy leads to is nothing that the log has to bring"


def test_a_snapshot_that_is_whole_in_memory_only_never_stands_whatever_the_record_says() -> None:
    """P2: its disk holds half of it, so a power cut would leave a primary without its state."""
    cluster, primary, b = copied_and_not_saved("slow")
    cluster.kill(primary.name)
    record = cluster.coordination.record
    assert record is not None and not b.core.replica.resyncing and b.disk.base.meta.resyncing
    ready_too = (*record.ready, b.member)
    cluster.coordination.record = replace(record, version=record.version + 1, ready=ready_too, released=True)
    cluster.pause(10)
    assert b.state == "joining"
    assert "no whole state" in (promote(b) or "")
    b.checkpoints_held = lambda write: False
    cluster.run(lambda: b.state == "active")
