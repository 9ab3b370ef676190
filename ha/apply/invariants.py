"""What must be so of the replica, its buffers, checkpoints and the record's gate (``txobserver.invariants``)."""

from __future__ import annotations

from ha.apply.buffers import Buffers
from ha.apply.checkpointing import Checkpointing
from ha.apply.record_gate import RecordGate
from ha.apply.replica import Replica
from txobserver.buffer_invariants import check_buffer, check_events_of
from txobserver.events import DtxDecision, DtxPrepare, Event, GlobalDecision, TxDecision, TxPrepare
from txobserver.ids import LAST_SEQUENCE, id_text
from txobserver.invariants import WALKED, differ, rises
from txobserver.ports.store import Checkpoint
from txobserver.state.invariants import check_contents, check_contents_deep
from txobserver.tx_buffer import DtxBuffer

DECISIONS = (TxDecision, DtxDecision)
PREPARES = (TxPrepare, DtxPrepare)


def check_replica(replica: Replica) -> None:
    """Positions, the ends of what waits to be applied, and the youngest transaction."""
    tail, applied, history, unapplied = replica.tail, replica.applied, replica.history, replica._unapplied
    assert 0 <= tail.sequence <= LAST_SEQUENCE, f"P7: the stream ends at {tail}"
    assert applied.sequence <= tail.sequence, f"P7: applied up to {applied}, and the stream ends at {tail}"
    assert applied.generation <= tail.generation or replica.resyncing, f"P10: applied {applied} of {tail}"
    assert applied.sequence <= replica.durable, f"P11: applied up to {applied}, and {replica.durable} is on the disk"
    assert replica.durable <= tail.sequence, f"P11: {replica.durable} is on the disk, and the stream ends at {tail}"
    assert not (replica.whole and replica.resyncing), "P9: a store that is being overwritten counts as whole"
    assert replica._saved_snapshots <= replica._snapshots, "P9: a snapshot was saved that never came"
    assert bool(history) or not tail.sequence, f"P7: a stream up to {tail} without a generation"
    if history:
        first, last = history[0], history[-1]
        assert first.sequence >= 1, f"P7: the first generation begins at {first}"
        assert last.generation == tail.generation, f"P10: the stream ends at {tail}, in the generation of {last}"
        assert last.sequence <= tail.sequence, f"P10: a generation begins at {last}, behind the end {tail}"
        assert last >= first, f"P10: generation {last} follows {first}"
    if replica.resyncing:
        assert not unapplied, f"P6: {len(unapplied)} events of the former log wait to be applied over a snapshot"
        assert not replica.buffers, f"P6: {len(replica.buffers)} transactions of the former log stand over a snapshot"
    elif history:
        known = replica.position_of(applied.sequence)
        assert not applied.sequence or known == applied, f"P6: applied {applied}, which stands in the stream as {known}"
    assert len(unapplied) <= tail.sequence - applied.sequence or replica.resyncing, "P7: more waits than has come"
    if unapplied:
        assert unapplied[0][0] > applied.sequence, f"P7: {unapplied[0][0]} waits, and {applied} has been applied"
        assert unapplied[-1][0] <= tail.sequence, f"P7: {unapplied[-1][0]} waits behind the end of the stream {tail}"
    if replica.buffers:
        youngest = next(reversed(replica.buffers.values()))
        check_buffer(youngest)
        assert youngest.opened <= tail.sequence, f"P6: transaction {id_text(youngest.tx)} begins behind {tail}"
    assert replica.buffers is replica._buffers.open, "P1: the replica looks at other buffers than it fills"
    check_contents(replica.contents, not replica.resyncing)


def check_replica_deep(replica: Replica) -> None:
    """All that waits, all transactions, and all that the applied prefix has led to."""
    history = replica.history
    assert rises(start.sequence for start in history), f"P10: generations begin at {history}"
    assert rises(start.generation for start in history), f"P10: generations follow each other as {history}"
    if len(replica._unapplied) <= WALKED:
        assert rises(sequence for sequence, _, _ in replica._unapplied), "P7: what waits is not in order"
        for sequence, generation, event in replica._unapplied:
            _check_waiting(replica, sequence, generation, event)
    _check_buffers(replica, replica._buffers)
    check_contents_deep(replica.contents, not replica.resyncing)


def _check_waiting(replica: Replica, sequence: int, generation: int, event: Event) -> None:
    """One event that has come and has not passed the commit point here."""
    known = replica.position_of(sequence).generation
    assert known == generation, f"P10: {generation}.{sequence} waits, which the stream has in generation {known}"
    if isinstance(event, DECISIONS):
        buffer = replica.buffers.get(event.tx)
        assert buffer is not None, f"P1: the decision at {sequence} is of no transaction that is held"
        assert buffer.decided == sequence, f"P6: {id_text(event.tx)} is decided at {buffer.decided} and at {sequence}"
    if isinstance(event, PREPARES):
        buffer = replica.buffers.get(event.tx)
        assert buffer is not None, f"P1: the prepare at {sequence} is of no transaction that is held"
        assert buffer.prepared == sequence, f"P6: {id_text(event.tx)} was closed at {buffer.prepared} and {sequence}"
    if isinstance(event, GlobalDecision):
        assert event.gtrid, f"P6: the decision at {sequence} is of no global transaction"


def _check_buffers(replica: Replica, buffers: Buffers) -> None:
    applied, tail, table = replica.applied.sequence, replica.tail.sequence, replica.contents.table
    assert buffers._saved_to <= tail, f"P7: transactions are saved up to {buffers._saved_to}, and {tail} is the end"
    assert differ(buffers._ended), "P7: a transaction ends twice in one checkpoint"
    assert not buffers.open.keys() & set(buffers._ended), "P7: a transaction that ended is open"
    waiting = {sequence for sequence, _, _ in replica._unapplied}
    for tx, buffer in list(buffers.open.items())[:WALKED]:
        check_buffer(buffer)
        check_events_of(buffer)
        assert buffer.tx == tx, f"P1: transaction {id_text(buffer.tx)} is held as {id_text(tx)}"
        last = max(buffer.decided or 0, buffer.prepared or 0, buffer.events[-1][0] if buffer.events else 0)
        assert last <= tail, f"P6: transaction {id_text(tx)} goes on behind the end of the stream"
        if buffer.decided is not None:
            assert buffer.decided > applied, f"P1: transaction {id_text(tx)} was decided, and was not applied"
            assert buffer.decided in waiting, f"P12: the decision of {id_text(tx)} does not wait to be applied"
        if buffer.prepared is not None and buffer.prepared > applied:
            assert buffer.prepared in waiting, f"P12: the prepare of {id_text(tx)} does not wait to be applied"
        if isinstance(buffer, DtxBuffer) and buffer.stays and (buffer.prepared or 0) <= applied:
            assert table.prepared.get(buffer.xid) is buffer, f"P2: the branch {buffer.xid} is prepared, and not listed"
        if buffer.name is not None and buffer.decided is None:
            assert table._live.get(buffer.name) is buffer, f"P6: {buffer.name!s} is in use, and not listed"
    held = {id(buffer) for buffer in buffers.open.values()}
    assert all(id(each) in held for each in table.prepared.values()), "P2: a branch in doubt has lost its events"
    assert all(id(each) in held for each in table._live.values()), "P6: a name is used by a transaction that ended"


def check_checkpointing(checkpointing: Checkpointing) -> None:
    """At most one on its way; an acknowledgement waits for another only while there is one."""
    replica, wanted = checkpointing._replica, checkpointing._wanted
    coming = checkpointing._running or replica.rests
    assert wanted is None or coming, "P12: an acknowledgement waits for a checkpoint, and there is none"
    assert wanted is None or wanted.sequence >= 0, f"P11: an acknowledgement of {wanted} waits for a checkpoint"
    assert checkpointing._applied >= 0, f"P7: the last checkpoint stands at {checkpointing._applied}"
    layers = replica.contents.layers
    assert checkpointing._running or not layers._frozen, "P7: changes are set aside for no checkpoint"
    assert checkpointing._running or not layers._frozen_bytes, "P12: what no checkpoint takes is counted"
    whole = replica.whole or coming or replica.resyncing
    assert whole, "P12: a copy is in memory, and no checkpoint makes it durable"


def check_gate(gate: RecordGate) -> None:
    """What is refused for having gone back stays refused."""
    assert gate._went_back is None or gate.refused == gate._went_back, "P10: a record that went back is gone by"
    assert gate.refused is None or gate.refused, "P12: a record is refused without a word"


def check_checkpoint(checkpoint: Checkpoint) -> None:
    """What is about to take the place of the last one."""
    meta, last = checkpoint.meta, checkpoint.meta.applied.sequence
    assert rises(start.sequence for start in meta.history), f"P10: generations begin at {meta.history}"
    assert all(start.sequence <= last for start in meta.history), f"P6: a checkpoint at {last} names a later generation"
    assert differ(queue for queue, _ in checkpoint.dropped), "P7: a queue is dropped twice in one checkpoint"
    saved = [(tx, sequence, event) for tx, events in checkpoint.tx_events for sequence, event in events]
    assert all(last >= sequence for _, sequence, _ in saved), "P6: it saves what is not applied"
    assert all(sequence > 0 for _, sequence, _ in saved), "P7: it saves an event without a position"
    assert differ((tx, at) for tx, at, _ in saved), "P7: it saves an event of a transaction twice"
    assert all(event.tx == tx for tx, _, event in saved), "P1: it saves an event of another transaction"
    assert differ(checkpoint.tx_ended), "P7: a transaction ends twice in one checkpoint"
    assert meta.outcomes.count >= 0, f"P7: it remembers {meta.outcomes.count} outcomes"
    assert checkpoint.changes.keys() <= meta.summaries.keys(), "P4: it changes a queue that is not there"
    for queue, summary in meta.summaries.items():
        assert summary.count >= 0, f"P3: queue {queue} is saved with {summary.count} messages"
        assert summary.watermark >= 0, f"P3: queue {queue} is saved with the watermark {summary.watermark}"
    if not meta.resyncing:
        declared = {spec.number for spec in meta.configuration.queues.values()}
        assert declared == meta.summaries.keys(), "P7: a checkpoint holds other queues than it declares"
        assert bool(meta.history) or not last, f"P7: a checkpoint at {meta.applied} knows of no generation"
    for key, each in checkpoint.remembered.items():
        assert each is None or each.key == key, f"P6: the outcome of {key!r} is saved for another transaction"
        assert each is None or each.sequence <= last, f"P6: an outcome of {each and each.sequence} is saved at {last}"
