"""QueueReplicator: the joiner's end of a catch-up queue by queue (seed 001)."""

from __future__ import annotations

from collections.abc import Callable

from ha.replica import Replica
from ha.wire import ForwardOutcomes, ForwardTx, Missing, QueueChange, QueueContent, QueueSnapshot, SnapshotEnd
from txobserver.effects import Effect, Send
from txobserver.ids import id_text
from txobserver.outcomes import Outcomes, Remembered
from txobserver.table import IllegalTransition
from txobserver.tx_buffer import opened_by


class SnapshotMismatch(Exception):
    """What was copied is not what the primary holds."""


class QueueReplicator:
    """Makes this node's queues like the primary's. Nothing of it counts before the end of the snapshot is durable."""

    def __init__(self, primary: str, session: int, replica: Replica, emit: Callable[[Effect], None]) -> None:
        self._primary = primary
        self._session = session
        self._replica = replica
        self._emit = emit
        self._forwarded: list[ForwardTx] = []
        self._remembered: list[Remembered] = []
        self._end: SnapshotEnd | None = None

    def snapshot(self, message: QueueSnapshot) -> None:
        """A page of a queue: drop what is surplus, ask for what is missing."""
        contents = self._replica.contents
        contents.add_queue(message.queue)
        wanted = dict(message.ids)
        for place, rid in contents.ids_between(message.queue, message.after, message.through):
            if wanted.get(place) == rid:
                del wanted[place]
            else:
                contents.remove(message.queue, place)
        reply = Missing(message.generation, self._session, message.queue, list(wanted))
        self._emit(Send(self._primary, reply))

    def content(self, message: QueueContent) -> None:
        """Messages that were missing."""
        for place, rid, body in message.entries:
            self._replica.contents.insert(message.queue, place, rid, body)

    def change(self, message: QueueChange) -> None:
        """Live changes of a queue. A message may be gone again before its content has come."""
        contents = self._replica.contents
        if message.purge is not None:
            contents.purge(message.queue, *message.purge)
        for place, rid, body in message.added:
            contents.insert(message.queue, place, rid, body)
        for place in message.removed:
            contents.remove(message.queue, place)

    def forward(self, message: ForwardTx) -> None:
        """A tx-queue that has not ended when the snapshot does."""
        self._forwarded.append(message)

    def remember(self, message: ForwardOutcomes) -> None:
        """Outcomes that the primary remembers when the snapshot ends."""
        self._remembered.extend(message.remembered)

    def end(self, message: SnapshotEnd) -> None:
        """The snapshot is whole: check it. Raises SnapshotMismatch, and the store stays marked as resyncing."""
        contents = self._replica.contents
        for number, count, digest, mark in message.queues:
            contents.add_queue(number)
            found = contents.summary(number)
            if (found.count, found.digest) != (count, digest):
                raise SnapshotMismatch(f"queue {number} holds {found.count} messages where the primary has {count}")
            contents.mark(number, mark)
        forwarded = [(each.tx, len(each.events)) for each in self._forwarded]
        if forwarded != message.transactions:
            raise SnapshotMismatch(f"{len(forwarded)} open transactions came, {len(message.transactions)} were sent")
        for each in self._forwarded:
            self._check(each)
        if Outcomes(message.outcomes, self._remembered).meta != message.outcomes:
            raise SnapshotMismatch(f"{len(self._remembered)} outcomes came, which are not those that were sent")
        self._end = message

    @staticmethod
    def _check(forwarded: ForwardTx) -> None:
        """A tx-queue begins with its opening, and is one transaction's only."""
        try:
            opened, first = forwarded.events[0]
            buffer = opened_by(first, opened)
            for sequence, event in forwarded.events[1:]:
                buffer.add(sequence, event)
        except (IndexError, IllegalTransition) as error:
            raise SnapshotMismatch(f"transaction {id_text(forwarded.tx)}: {error}") from None
        if any(event.tx != forwarded.tx for _, event in forwarded.events):
            raise SnapshotMismatch(f"transaction {id_text(forwarded.tx)} is mixed with another")

    def finish(self) -> int:
        """The former log is gone, durably: the snapshot takes its place. Returns its sequence."""
        message = self._end
        assert message is not None
        transactions = {forwarded.tx: forwarded.events for forwarded in self._forwarded}
        self._replica.end_resync(
            message.position, message.history, message.configuration, transactions, message.outcomes, self._remembered
        )
        return message.position.sequence
