"""The end of a snapshot, cut at one position of the stream and sent in slices.

Everything is taken at once, by reference: what the primary applies while the slices go out comes behind the cut
(``snapshot_with_later_configuration``). Events of a tx-queue are only ever added, so those up to the cut stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ha.apply.replica import Replica
from ha.messages.copying import (
    ForwardOutcomes,
    ForwardTx,
    SnapshotConfiguration,
    SnapshotEnd,
    SnapshotPart,
    SnapshotQueues,
)
from ha.messages.sizes import COUNT, OVERHEAD, event_bytes, slices
from txobserver.configuration import BindingSpec, ExchangeSpec, QueueSpec
from txobserver.ids import Position
from txobserver.outcomes import Remembered
from txobserver.tx_buffer import TxBuffer

Spec = QueueSpec | ExchangeSpec | BindingSpec
_encode = msgspec.msgpack.Encoder().encode
QUEUE_BYTES = 40
"""Bytes of a queue's number, count, digest and delivery watermark."""


class Ending:
    """One joiner's end of the snapshot. ``limit``: bytes of a slice."""

    def __init__(self, replica: Replica, generation: int, session: int, limit: int) -> None:
        contents = replica.contents
        self._generation = generation
        self._session = session
        self._limit = limit
        self._end: Position = replica.applied
        self._history = [start for start in replica.history if start.sequence <= self._end.sequence]
        self._configuration = contents.configuration.copy()
        self._queues = [
            (number, each.count, each.digest, each.watermark)
            for number in sorted(self._configuration.numbers())
            for each in (contents.queues.summary(number),)
        ]
        self._buffers: list[TxBuffer] = [each for each in replica.buffers.values() if each.opened <= self._end.sequence]
        self._remembered = contents.table.outcomes.all()
        self._outcomes = contents.table.outcomes.meta

    def parts(self) -> Iterator[tuple[SnapshotPart, int]]:
        """Each message, in the order of sending, with its size."""
        yield from self._declared()
        for queues in slices(self._queues, lambda each: QUEUE_BYTES, self._limit):
            yield SnapshotQueues(self._generation, self._session, queues), QUEUE_BYTES * len(queues)
        transactions: list[tuple[int, int]] = []
        for buffer in self._buffers:
            yield from self._forwarded(buffer, transactions)
        for remembered in slices(self._remembered, _outcome_bytes, self._limit):
            part = ForwardOutcomes(self._generation, self._session, remembered)
            yield part, sum(_outcome_bytes(each) for each in remembered)
        declared = self._configuration
        counts = len(declared.queues), len(declared.exchanges), len(declared.bindings)
        end = SnapshotEnd(
            self._generation,
            self._session,
            self._end,
            self._history,
            declared.last_id,
            counts,
            transactions,
            self._outcomes,
        )
        yield end, OVERHEAD + COUNT * len(transactions)

    def _declared(self) -> Iterator[tuple[SnapshotPart, int]]:
        configuration = self._configuration
        specs: list[Spec] = [*configuration.queues.values(), *configuration.exchanges.values(), *configuration.bindings]
        for run in slices(specs, _spec_bytes, self._limit):
            part = SnapshotConfiguration(
                self._generation,
                self._session,
                [each for each in run if isinstance(each, QueueSpec)],
                [each for each in run if isinstance(each, ExchangeSpec)],
                [each for each in run if isinstance(each, BindingSpec)],
            )
            yield part, sum(_spec_bytes(each) for each in run)

    def _forwarded(
        self, buffer: TxBuffer, transactions: list[tuple[int, int]]
    ) -> Iterator[tuple[SnapshotPart, int]]:
        """One tx-queue's events up to the cut; how many those are is added to ``transactions``."""
        last, count = self._end.sequence, 0
        events = ((sequence, event) for sequence, event in buffer.since(0) if sequence <= last)
        for run in slices(events, lambda each: event_bytes(each[1]), self._limit):
            count += len(run)
            yield ForwardTx(self._generation, self._session, buffer.tx, run), sum(event_bytes(e) for _, e in run)
        transactions.append((buffer.tx, count))


def _spec_bytes(spec: Spec) -> int:
    """Exactly: arguments are as large as one AMQP frame allows."""
    return len(_encode(spec))


def _outcome_bytes(remembered: Remembered) -> int:
    return OVERHEAD + len(remembered.gtrid) + len(remembered.bqual)
