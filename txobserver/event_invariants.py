"""What must be so of each event of the stream, and of each frame of them (``txobserver.invariants``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txobserver.access import ACCESS
from txobserver.batch import NUMBER
from txobserver.calls import CALLS
from txobserver.configuration import (
    BIND,
    DECLARE_EXCHANGE,
    DECLARE_QUEUE,
    DELETE_EXCHANGE,
    DELETE_QUEUE,
    LEAVE_EXCHANGE,
    UNBIND,
    USE_EXCHANGE,
    USE_QUEUE,
)
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    Forget,
    GenerationStart,
    GlobalDecision,
    GlobalForget,
    Publish,
    Purge,
    Removal,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.frames import HEADER_SIZE, MAGIC, TRAILER, Frame, bytes_behind, header_is_intact, last_of
from txobserver.ids import (
    LAST_CONFIG_ID,
    LAST_GENERATION,
    LAST_SEQUENCE,
    MAX_TRANSACTION_EVENTS,
    generation_of,
    offset_of,
)
from txobserver.invariants import differ
from txobserver.xid import MAX_FORMAT, MAX_PART

ADDING = (DECLARE_QUEUE, USE_QUEUE, DECLARE_EXCHANGE, USE_EXCHANGE, BIND)
REMOVING = (DELETE_QUEUE, DELETE_EXCHANGE, LEAVE_EXCHANGE, UNBIND)
REASONS = frozenset(map(int, Removal))


def check_frame(frame: Frame) -> None:
    """A frame as it is written, by what its header says; its events are not decoded."""
    data = frame.data
    assert frame.count > 0, f"P7: the frame at {frame.first} holds {frame.count} events"
    assert frame.first >= 1, f"P7: a frame begins at sequence {frame.first}"
    assert frame.last <= LAST_SEQUENCE, f"P7: a frame ends at {frame.last}, behind the last sequence"
    assert 1 <= frame.generation <= LAST_GENERATION, f"P10: a frame is of generation {frame.generation}"
    assert frame.time_ms >= 0, f"P12: a frame was written at {frame.time_ms} ms"
    assert data[: len(MAGIC)] == MAGIC, f"P11: the frame at {frame.first} begins with {data[: len(MAGIC)]!r}"
    assert data[-1:] == TRAILER, f"P11: the frame at {frame.first} ends with {data[-1:]!r}"
    assert header_is_intact(data), f"P11: the header of the frame at {frame.first} is not as it was made"
    assert last_of(data) == frame.last, f"P7: the frame up to {frame.last} says that it ends at {last_of(data)}"
    there = len(data) - HEADER_SIZE
    assert bytes_behind(data) == there, f"P11: {there} bytes behind the header that says {bytes_behind(data)}"


def check_events(frame: Frame) -> None:
    """Each event of a frame."""
    events = frame.events()
    assert len(events) == frame.count, f"P7: {len(events)} events in a frame that counts {frame.count}"
    for offset, event in enumerate(events):
        check_event(frame.first + offset, frame.generation, event)


def check_event(sequence: int, generation: int, event: Event) -> None:
    """One event at this position."""
    check = _CHECKS.get(type(event))
    assert check is not None, f"P7: no node knows what to do with {type(event).__name__} at {sequence}"
    check(sequence, generation, event)


def _start(sequence: int, generation: int, event: GenerationStart) -> None:
    assert event.generation == generation, f"P10: generation {event.generation} begins within {generation}"
    assert event.primary, f"P10: generation {generation} begins without a primary"
    assert differ(event.expected), f"P9: a member is expected twice among {event.expected}"


def _configure(sequence: int, generation: int, event: Configure) -> None:
    known = event.operation in ADDING or event.operation in REMOVING or event.operation in CALLS | ACCESS | {NUMBER}
    assert known, f"P7: no node can carry out the step {event.operation!r}"
    assert 1 <= event.config_id <= LAST_CONFIG_ID, f"P7: a step of configuration has the id {event.config_id}"
    assert event.config_id <= sequence, f"P7: {event.config_id} steps of configuration in {sequence} events"
    assert event.name or event.operation in (BIND, UNBIND), f"P7: {event.operation} names nothing"
    if event.terms is not None:
        assert event.operation in REMOVING, f"P2: {event.operation} depends on terms of removals"
        assert differ(event.terms.spared), f"P2: {event.name} is judged by a message twice"
        assert not event.terms.empty or event.operation == DELETE_QUEUE, f"P2: {event.operation} of what is empty"
        assert event.terms.empty or event.terms.through is None, f"P2: {event.operation} of what is in clients' hands"
        assert not event.terms.unused or event.operation == DELETE_EXCHANGE, f"P2: {event.operation} of the unused"


def _publish(sequence: int, generation: int, event: Publish) -> None:
    assert event.rid > 0, f"P3: a message without a replication id at {sequence}"
    given = generation_of(event.rid)
    assert given == generation, f"P3: generation {generation} gives the id {event.rid} of generation {given}"
    _queues(sequence, event.queues)


def _queues(sequence: int, queues: tuple[int, ...]) -> None:
    assert queues, f"P5: a message at {sequence} goes to no queue"
    assert differ(queues), f"P3: a message at {sequence} goes to a queue twice: {queues}"
    assert min(queues) > 0, f"P5: a message at {sequence} goes to the queue {min(queues)}, which none can be"
    assert max(queues) < sequence, f"P5: a message at {sequence} goes to the queue {max(queues)}, declared later"


def _removal(sequence: int, event: Settle | TxDequeue) -> None:
    offsets = [offset for offset, _ in event.entries]
    assert offsets, f"P3: nothing leaves queue {event.queue} at {sequence}"
    assert event.queue > 0, f"P5: messages leave the queue {event.queue}, which none can be"
    assert event.reason in REASONS, f"P2: messages leave queue {event.queue} for the reason {event.reason}"
    assert differ(offsets), f"P3: a message leaves queue {event.queue} twice at {sequence}"
    assert min(offsets) >= 0, f"P5: a message leaves queue {event.queue} at {min(offsets)}"
    assert max(offsets) < offset_of(sequence), f"P5: a message leaves queue {event.queue} before it came"
    assert all(rid > 0 for _, rid in event.entries), f"P3: a message without an id leaves queue {event.queue}"


def _settle(sequence: int, generation: int, event: Settle) -> None:
    _removal(sequence, event)
    newest = max(generation_of(rid) for _, rid in event.entries)
    assert newest <= generation, f"P5: generation {generation} settles a message of generation {newest}"


def _delivered(sequence: int, generation: int, event: Delivered) -> None:
    assert event.queue > 0, f"P3: leave to hand out messages of queue {event.queue}"
    assert 0 <= event.offset < offset_of(sequence), f"P3: leave for {event.offset} at {sequence}, before it came"


def _purge(sequence: int, generation: int, event: Purge) -> None:
    assert event.queue > 0, f"P2: the queue {event.queue} is purged"
    assert event.offset >= 0, f"P2: queue {event.queue} is purged up to {event.offset}"
    assert differ(event.spared), f"P3: a purge of queue {event.queue} spares a message twice"
    assert len(event.rids) in (0, len(event.spared)), f"P3: {len(event.rids)} ids for {len(event.spared)} messages"
    assert all(rid > 0 for rid in event.rids), f"P3: a purge of queue {event.queue} spares a message without an id"
    held = max(event.spared, default=0)
    assert held < offset_of(sequence), f"P5: a purge at {sequence} spares {held}, which comes later"


def _opened(sequence: int, generation: int, event: Any) -> None:
    given = generation_of(event.tx)
    assert event.tx > 0, f"P6: a transaction without an id begins at {sequence}"
    assert given == generation, f"P6: generation {generation} begins transaction {event.tx} of generation {given}"


def _branch_opened(sequence: int, generation: int, event: DtxOpen) -> None:
    _opened(sequence, generation, event)
    _named(event.xid.format_id, event.xid.gtrid)
    assert len(event.xid.bqual) <= MAX_PART, f"P6: a branch of {len(event.xid.bqual)} bytes"


def _named(format_id: int, gtrid: bytes) -> None:
    assert 0 <= format_id <= MAX_FORMAT, f"P6: a global transaction of format {format_id}"
    assert 1 <= len(gtrid) <= MAX_PART, f"P6: a global transaction of {len(gtrid)} bytes"


def _enqueue(sequence: int, generation: int, event: TxEnqueue) -> None:
    _opened(sequence, generation, event)
    assert event.rid > 0, f"P3: a message without a replication id in transaction {event.tx}"
    assert generation_of(event.rid) == generation, f"P3: transaction {event.tx} takes the id {event.rid} of another"
    _queues(sequence, event.queues)


def _dequeue(sequence: int, generation: int, event: TxDequeue) -> None:
    _opened(sequence, generation, event)
    _removal(sequence, event)


def _prepare(sequence: int, generation: int, event: TxPrepare | DtxPrepare) -> None:
    _opened(sequence, generation, event)
    assert event.count >= 1, f"P1: transaction {event.tx} is closed with {event.count} events"
    assert event.count <= MAX_TRANSACTION_EVENTS, f"P1: transaction {event.tx} has {event.count} events"
    assert event.count < sequence, f"P1: transaction {event.tx} counts more events than the stream has"
    assert event.participants, f"P11: transaction {event.tx} has no participants"
    assert differ(event.participants), f"P11: {event.participants} take part in transaction {event.tx}"


def _branch_prepare(sequence: int, generation: int, event: DtxPrepare) -> None:
    _prepare(sequence, generation, event)
    assert event.at_ms >= 0, f"P12: a branch is prepared at {event.at_ms} ms"


def _decision(sequence: int, generation: int, event: TxDecision | DtxDecision) -> None:
    begun = generation_of(event.tx)
    assert event.tx > 0, f"P6: a transaction without an id is decided at {sequence}"
    assert begun <= generation, f"P6: generation {generation} decides transaction {event.tx} of generation {begun}"


def _named_decision(sequence: int, generation: int, event: DtxDecision) -> None:
    _decision(sequence, generation, event)
    assert event.at_ms >= 0, f"P6: a transaction is decided at {event.at_ms} ms"


def _global_decision(sequence: int, generation: int, event: GlobalDecision) -> None:
    _named(event.format_id, event.gtrid)
    assert event.at_ms >= 0, f"P6: a global transaction is decided at {event.at_ms} ms"


def _forget(sequence: int, generation: int, event: Forget) -> None:
    _named(event.xid.format_id, event.xid.gtrid)


def _global_forget(sequence: int, generation: int, event: GlobalForget) -> None:
    _named(event.format_id, event.gtrid)


def _token(sequence: int, generation: int, event: TxToken) -> None:
    _opened(sequence, generation, event)
    assert 1 <= len(event.token) <= MAX_PART, f"P6: a token of {len(event.token)} bytes"


_CHECKS: dict[type, Callable[..., None]] = {
    GenerationStart: _start,
    Configure: _configure,
    Publish: _publish,
    Settle: _settle,
    Delivered: _delivered,
    Purge: _purge,
    TxOpen: _opened,
    TxEnqueue: _enqueue,
    TxDequeue: _dequeue,
    TxPrepare: _prepare,
    TxDecision: _decision,
    DtxOpen: _branch_opened,
    DtxPrepare: _branch_prepare,
    DtxDecision: _named_decision,
    GlobalDecision: _global_decision,
    Forget: _forget,
    GlobalForget: _global_forget,
    TxToken: _token,
}
