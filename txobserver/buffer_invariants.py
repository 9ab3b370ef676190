"""What must be so of a transaction's buffer, in each of its states, on every node (``txobserver.invariants``)."""

from __future__ import annotations

from txobserver.events import TxEnqueue
from txobserver.ids import MAX_TRANSACTION_EVENTS, generation_of, id_text
from txobserver.invariants import WALKED, differ, rises
from txobserver.tx_buffer import ABORTED, COMMITTED, OPEN, PREPARED, DtxBuffer, TxBuffer
from txobserver.xid import MAX_PART, Xid


def check_buffer(buffer: TxBuffer) -> None:
    """What its fields say of each other; costs the same however long it is."""
    tx, prepared, decided = id_text(buffer.tx), buffer.prepared, buffer.decided
    assert buffer.tx >= 0, f"P6: a transaction has the id {buffer.tx}"
    assert buffer.opened >= 1, f"P7: transaction {tx} began at {buffer.opened}"
    assert buffer.state in (OPEN, PREPARED, COMMITTED, ABORTED), f"P6: transaction {tx} is {buffer.state}"
    assert len(buffer.events) <= MAX_TRANSACTION_EVENTS, f"P1: transaction {tx} has {len(buffer.events)} events"
    if buffer.state == OPEN:
        assert prepared is None, f"P6: transaction {tx} is open, and was closed at {prepared}"
        assert buffer.count == 0, f"P1: transaction {tx} is open, and counts {buffer.count} events"
        assert not buffer.participants, f"P11: transaction {tx} is open, and {buffer.participants} take part in it"
    if buffer.state in (OPEN, PREPARED):
        assert decided is None, f"P6: transaction {tx} is {buffer.state}, and was decided at {decided}"
    else:
        assert decided is not None, f"P6: transaction {tx} is {buffer.state} without a decision"
        assert decided > buffer.opened, f"P6: transaction {tx} was decided at {decided}, before it began"
    if buffer.state in (PREPARED, COMMITTED):
        assert prepared is not None, f"P6: transaction {tx} is {buffer.state} without a prepare"
        assert buffer.participants, f"P11: transaction {tx} is {buffer.state}, and has no participants"
    if buffer.state == COMMITTED:
        assert buffer.complete, f"P1: transaction {tx} commits {len(buffer.events)} of its {buffer.count} events"
    if prepared is not None:
        assert prepared > buffer.opened, f"P7: transaction {tx} was closed at {prepared}, before it began"
        assert decided is None or decided > prepared, f"P6: transaction {tx} was decided before it was prepared"
        assert not buffer.events or buffer.events[-1][0] < prepared, f"P1: transaction {tx} grows behind its prepare"
    if buffer.events:
        first, last = buffer.events[0][0], buffer.events[-1][0]
        assert first > buffer.opened, f"P1: transaction {tx} has an event at {first}, before it began"
        assert last - first >= len(buffer.events) - 1, f"P1: transaction {tx} has two events at one position"
    _check_name(buffer, tx)


def _check_name(buffer: TxBuffer, tx: str) -> None:
    if isinstance(buffer, DtxBuffer):
        assert isinstance(buffer.name, Xid), f"P6: branch {tx} goes by {buffer.name!r}"
        assert buffer.name == buffer.xid, f"P6: branch {buffer.xid} goes by {buffer.name}"
        assert not buffer.stays or buffer.prepared is not None, f"P2: branch {buffer.xid} stays without a prepare"
        assert buffer.prepared_ms >= 0, f"P12: branch {buffer.xid} was prepared at {buffer.prepared_ms} ms"
    else:
        assert not buffer.stays, f"P6: transaction {tx} stays, which a branch alone does"
        if buffer.name is not None:
            assert isinstance(buffer.name, bytes), f"P6: transaction {tx}, which is no branch, goes by {buffer.name}"
            assert 1 <= len(buffer.name) <= MAX_PART, f"P6: transaction {tx} has a token of {len(buffer.name)} bytes"


def check_events_of(buffer: TxBuffer) -> None:
    """Its events, one by one."""
    if len(buffer.events) > WALKED:
        return
    tx, given = id_text(buffer.tx), generation_of(buffer.tx)
    sequences = [sequence for sequence, _ in buffer.events]
    assert rises(sequences), f"P7: the events of transaction {tx} stand at {sequences}"
    ids: list[int] = []
    for sequence, event in buffer.events:
        assert event.tx == buffer.tx, f"P1: transaction {tx} holds an event of {id_text(event.tx)} at {sequence}"
        if isinstance(event, TxEnqueue):
            ids.append(event.rid)
            assert event.queues, f"P5: transaction {tx} publishes to no queue at {sequence}"
            assert generation_of(event.rid) == given, f"P3: transaction {tx} gives the id {id_text(event.rid)}"
        else:
            assert event.entries, f"P1: transaction {tx} acknowledges nothing at {sequence}"
    assert differ(ids), f"P3: transaction {tx} publishes under one id twice"
    offsets = [
        (event.queue, offset)
        for _, event in buffer.events
        if not isinstance(event, TxEnqueue)
        for offset, _ in event.entries
    ]
    assert differ(offsets), f"P3: transaction {tx} acknowledges a message twice"
    removals = [event for _, event in buffer.events if not isinstance(event, TxEnqueue)]
    assert buffer.removals == removals, f"P1: transaction {tx} lists other removals than its events"
    assert all(offset >= 0 for _, offset in offsets), f"P5: transaction {tx} acknowledges what is at no offset"
