"""Applier: what each event that has passed the commit point changes, and which listeners learn of it.

The primary, backups and a node that reads its log at the start run this same code, in stream order: so queues agree
wherever positions do (P7), and nothing of an undecided transaction ever reaches a queue (P9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.apply.applied import Applied
from ha.apply.buffers import Buffers
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
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
    TxPrepare,
)
from txobserver.ids import offset_of
from txobserver.state.contents import Contents
from txobserver.tx_buffer import DtxBuffer
from txobserver.xid import Global


class Applier:
    """Changes ``contents``, and ends the transactions of ``buffers``."""

    def __init__(self, contents: Contents, buffers: Buffers) -> None:
        self._contents: Final = contents
        self._queues: Final = contents.queues
        self._buffers: Final = buffers

    def apply(self, sequence: int, event: Event, listener: Applied) -> None:
        """Carry out one event, and tell the listener."""
        _APPLY[type(event)](self, sequence, event, listener)

    def _start(self, sequence: int, event: GenerationStart, listener: Applied) -> None:
        """Nothing to do: the generation is in the position."""

    def _configure(self, sequence: int, event: Configure, listener: Applied) -> None:
        done = self._contents.configure(event)
        if done.deleted is not None:
            listener.queue_deleted(done.deleted)
        listener.configured(event, done)

    def _publish(self, sequence: int, event: Publish, listener: Applied) -> None:
        self._insert(offset_of(sequence), event, listener)

    def _insert(self, offset: int, event: Publish | TxEnqueue, listener: Applied) -> None:
        rid, message = event.rid, event.message
        for queue in event.queues:
            if self._queues.insert(queue, offset, rid, message):
                listener.enqueued(queue, offset, rid, message)

    def _settle(self, sequence: int, event: Settle, listener: Applied) -> None:
        self._remove(event, listener)

    def _remove(self, event: Settle | TxDequeue, listener: Applied) -> None:
        remove, queue = self._queues.remove, event.queue
        gone = [entry for entry in event.entries if remove(queue, *entry)]
        if gone:
            listener.removed(queue, gone, Removal(event.reason))

    def _delivered(self, sequence: int, event: Delivered, listener: Applied) -> None:
        self._queues.raise_watermark(event.queue, event.offset)
        listener.watermark_raised(event.queue, event.offset)

    def _purge(self, sequence: int, event: Purge, listener: Applied) -> None:
        spared, rids = event.spared, dict(zip(event.spared, event.rids, strict=False))
        if locked := self._contents.table.locked(event.queue):
            spared = sorted(locked.union(spared))
        count = self._queues.purge(event.queue, event.offset, spared, rids)
        listener.purged(event.queue, event.offset, spared, count)

    def _prepare(self, sequence: int, event: TxPrepare, listener: Applied) -> None:
        listener.prepared(event.tx)

    def _branch_prepare(self, sequence: int, event: DtxPrepare, listener: Applied) -> None:
        buffer = self._buffers.open[event.tx]
        assert isinstance(buffer, DtxBuffer)
        self._contents.table.branch_prepared(buffer)
        listener.branch_prepared(buffer)

    def _decision(self, sequence: int, event: TxDecision | DtxDecision, listener: Applied) -> None:
        buffer = self._buffers.end(event.tx)
        if event.commit:
            for offset, part in buffer.placed():
                if isinstance(part, TxEnqueue):
                    self._insert(offset, part, listener)
                else:
                    self._remove(part, listener)
        if buffer.name is not None:
            self._contents.table.ended(buffer, event, sequence)
        listener.ended(buffer, event.commit)

    def _global_decision(self, sequence: int, event: GlobalDecision, listener: Applied) -> None:
        self._contents.table.globally_decided(event, sequence)

    def _forget(self, sequence: int, event: Forget, listener: Applied) -> None:
        self._contents.table.outcomes.forget(event.xid)

    def _global_forget(self, sequence: int, event: GlobalForget, listener: Applied) -> None:
        self._contents.table.outcomes.forget(Global(event.format_id, event.gtrid))


_APPLY: dict[type, Callable[..., None]] = {
    GenerationStart: Applier._start,
    Configure: Applier._configure,
    Publish: Applier._publish,
    Settle: Applier._settle,
    Delivered: Applier._delivered,
    Purge: Applier._purge,
    TxPrepare: Applier._prepare,
    TxDecision: Applier._decision,
    DtxPrepare: Applier._branch_prepare,
    DtxDecision: Applier._decision,
    GlobalDecision: Applier._global_decision,
    Forget: Applier._forget,
    GlobalForget: Applier._global_forget,
}
