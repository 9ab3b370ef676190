"""Applier: what each event that has passed the commit point changes, and which listeners learn of it.

The primary, backups and a node that reads its log at the start run this same code, in stream order: so queues agree
wherever positions do (P7), and nothing of an undecided transaction ever reaches a queue (P9).

An event that changes more than a turn of the loop has room for is applied piece by piece (``EventParts``): a decision,
mostly; else a settlement of many messages, or a message to many queues. It is one step all the same: until the last
piece has been done nothing behind it is applied, and its queues are told as they were before it
(docs/decisions/decisions-in-parts.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ha.apply.applied import Applied
from ha.apply.buffers import Buffers
from txobserver.configuration import Configured
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
from txobserver.tx_buffer import DtxBuffer, TxBuffer
from txobserver.xid import Global

Divisible = TxDecision | DtxDecision | Publish | Settle
Change = TxEnqueue | TxDequeue | Publish | Settle
DIVISIBLE: Final = (TxDecision, DtxDecision, Publish, Settle)
"""The kinds of events that can be applied piece by piece"""


class Applier:
    """Changes ``contents``, and ends the transactions of ``buffers``.

    Many methods: one for each kind of event.
    """

    def __init__(self, contents: Contents, buffers: Buffers) -> None:
        self._contents: Final = contents
        self._queues: Final = contents.queues
        self._buffers: Final = buffers

    def apply(self, sequence: int, event: Event, listener: Applied) -> None:
        """Carry out one event, and tell the listener."""
        _APPLY[type(event)](self, sequence, event, listener)

    def steps(self, event: Event) -> int:
        """How many messages an event puts into queues and takes out of them; 1 for one that is about none."""
        kind = type(event)
        if kind is Publish:
            return len(event.queues)  # type: ignore[union-attr]
        if kind is Settle:
            return len(event.entries)  # type: ignore[union-attr]
        if (kind is TxDecision or kind is DtxDecision) and event.commit:  # type: ignore[union-attr]
            return self._buffers.open[event.tx].steps  # type: ignore[union-attr]
        return 1

    def begin_parts(self, sequence: int, event: Divisible, listener: Applied) -> EventParts:
        """Begin to apply an event piece by piece, of decisions one to commit; ``end_parts`` is the end of it."""
        self._queues.begin_step()
        listener.step_begins()
        if isinstance(event, Publish | Settle):
            return EventParts(self, iter([(offset_of(sequence), event)]))
        return EventParts(self, self._buffers.open[event.tx].placed())

    def end_parts(self, sequence: int, event: Divisible, listener: Applied) -> None:
        """The last piece has been done: from here on all of it may be seen."""
        self._queues.end_step()
        listener.step_ends()
        if not isinstance(event, Publish | Settle):
            self._ended(self._buffers.end(event.tx), sequence, event, listener)

    def drop_parts(self) -> None:
        """What has been done of a decision counts as it is, since a copy of the queues takes the place of them all."""
        self._queues.end_step()

    def _start(self, sequence: int, event: GenerationStart, listener: Applied) -> None:
        """Nothing to do: the generation is in the position."""

    def _configure(self, sequence: int, event: Configure, listener: Applied) -> None:
        done = self._contents.configure(event)
        if done.deleted is not None:
            listener.queue_deleted(done.deleted)
        for part in done.parts:
            listener.configured(part, Configured())
        listener.configured(event, done)

    def _publish(self, sequence: int, event: Publish, listener: Applied) -> None:
        self.insert(offset_of(sequence), event, event.queues, listener)

    def insert(self, offset: int, event: Publish | TxEnqueue, queues: tuple[int, ...], listener: Applied) -> None:
        """A message enters some of its queues, or all."""
        rid, message = event.rid, event.message
        for queue in queues:
            if self._queues.insert(queue, offset, rid, message):
                listener.enqueued(queue, offset, rid, message)

    def _settle(self, sequence: int, event: Settle, listener: Applied) -> None:
        self.remove(event, event.entries, listener)

    def remove(self, event: Settle | TxDequeue, entries: list[tuple[int, int]], listener: Applied) -> None:
        """Some of the messages that an event names leave their queue."""
        remove, queue = self._queues.remove, event.queue
        gone = [entry for entry in entries if remove(queue, *entry)]
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
                    self.insert(offset, part, part.queues, listener)
                else:
                    self.remove(part, part.entries, listener)
        self._ended(buffer, sequence, event, listener)

    def _ended(self, buffer: TxBuffer, sequence: int, event: TxDecision | DtxDecision, listener: Applied) -> None:
        """A transaction has been applied to every queue, or was aborted."""
        if buffer.name is not None:
            self._contents.table.ended(buffer, event, sequence)
        listener.ended(buffer, event.commit)
        buffer.give_away(self._contents.leftovers)

    def _global_decision(self, sequence: int, event: GlobalDecision, listener: Applied) -> None:
        self._contents.table.globally_decided(event, sequence)

    def _forget(self, sequence: int, event: Forget, listener: Applied) -> None:
        self._contents.table.outcomes.forget(event.xid)

    def _global_forget(self, sequence: int, event: GlobalForget, listener: Applied) -> None:
        self._contents.table.outcomes.forget(Global(event.format_id, event.gtrid))


class EventParts:
    """What is left to be done of one event: ``placed`` is what it changes, in order, with offsets.

    A piece may end within a message to many queues, or an acknowledgement of many messages: ``_change``, and of how
    many of those it has been carried out.
    """

    def __init__(self, applier: Applier, placed: Iterator[tuple[int, Change]]) -> None:
        self._applier: Final = applier
        self._placed: Final = placed
        self._change: Change | None = None
        self._offset = 0
        self._done = 0

    def go_on(self, most: int, listener: Applied) -> int:
        """Do about ``most`` steps more; returns how many of them were left when all had been done, 0 before."""
        left = most
        while left > 0:
            if self._change is not None:
                left -= self._go_on_with(self._change, left, listener)
                continue
            placed = next(self._placed, None)
            if placed is None:
                return left
            self._offset, self._change = placed
            self._done = 0
        return 0

    def _go_on_with(self, change: Change, most: int, listener: Applied) -> int:
        """The next piece of one change; returns how many steps that was."""
        first, last = self._done, self._done + most
        if isinstance(change, TxEnqueue | Publish):
            whole = len(change.queues)
            self._applier.insert(self._offset, change, change.queues[first:last], listener)
        else:
            whole = len(change.entries)
            self._applier.remove(change, change.entries[first:last], listener)
        self._done = min(whole, last)
        if self._done == whole:
            self._change = None
        return self._done - first


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
