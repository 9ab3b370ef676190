"""TxBuffer: what a node holds of one transaction before its outcome is known (seed 003, PROTOCOL "A transaction").

It is built when events are received, long before they may be applied, on the primary and on every backup alike.
Events keep their sequences, so that the tail of the stream can be cut off again (``truncate``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from txobserver.events import (
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxEvent,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.ids import id_text, offset_of
from txobserver.leftovers import Leftovers
from txobserver.message_size import size_of
from txobserver.table import IllegalTransition, Table
from txobserver.xid import Xid

OPEN: Final = "open"
PREPARED: Final = "prepared"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"

TX_TABLE: Table[str, str] = Table(
    "transaction",
    OPEN,
    {
        (OPEN, "enqueue"): OPEN,
        (OPEN, "dequeue"): OPEN,
        (OPEN, "name"): OPEN,
        (OPEN, "prepare"): PREPARED,
        (OPEN, "abort"): ABORTED,
        (PREPARED, "commit"): COMMITTED,
        (PREPARED, "abort"): ABORTED,
    },
)


Run = list[tuple[int, TxEvent]]
"""Events of one tx-queue, in order, with their sequences"""


class TxBuffer:
    """One transaction's events, its state, and where it was opened, closed and decided (sequences, or None).

    ``name``: what its outcome is remembered by, a token or an xid; None for most. ``stays``: whether a failover leaves
    it prepared instead of aborting it. ``enqueued`` and ``dequeued``: how many messages it puts into each queue and
    takes out of each; ``steps``: all of them together; ``size``: bytes of those that it puts in, properties and bodies.
    They are counted as events come, so that to ask for them costs the same however many there are. ``removals``: those
    of ``events`` that take messages out.
    """

    def __init__(self, tx: int, opened: int) -> None:
        self.name: Xid | bytes | None = None
        self.stays = False
        self.tx = tx
        self.opened = opened
        self.state = OPEN
        self.prepared: int | None = None
        self.decided: int | None = None
        self.count = 0
        self.participants: list[str] = []
        self.events: list[tuple[int, TxEnqueue | TxDequeue]] = []
        self.removals: list[TxDequeue] = []
        self.enqueued: dict[int, int] = {}
        self.dequeued: dict[int, int] = {}
        self.steps = 0
        self.size = 0
        self._named: int | None = None

    @property
    def complete(self) -> bool:
        """Whether every event that the prepare counted is here. A node that lacks one must vote against."""
        return self.prepared is not None and self.count == len(self.events)

    def add(self, sequence: int, event: TxEvent) -> None:
        """Take the next event of this tx-queue. Raises IllegalTransition for one that cannot come now."""
        if isinstance(event, TxEnqueue):
            if self.state != OPEN:
                TX_TABLE.next(self.state, "enqueue")
            self.events.append((sequence, event))
            self._count(event, 1)
        elif isinstance(event, TxDequeue):
            self.state = TX_TABLE.next(self.state, "dequeue")
            self.events.append((sequence, event))
            self.removals.append(event)
            self._count(event, 1)
        elif isinstance(event, TxPrepare):
            self._prepare(sequence, event)
        elif isinstance(event, TxDecision | DtxDecision):
            self.state = TX_TABLE.next(self.state, "commit" if event.commit else "abort")
            self.decided = sequence
        elif isinstance(event, TxToken) and self.name is None:
            self.state = TX_TABLE.next(self.state, "name")
            self.name, self._named = event.token, sequence
        else:
            raise IllegalTransition(f"transaction {id_text(self.tx)} takes no {type(event).__name__}")

    def truncate(self, last: int) -> bool:
        """Forget what came after sequence ``last``; returns whether anything of the transaction remains."""
        if self.opened > last:
            return False
        while self.events and self.events[-1][0] > last:
            last_event = self.events.pop()[1]
            if isinstance(last_event, TxDequeue):
                self.removals.pop()
            self._count(last_event, -1)
        if self.decided is not None and self.decided > last:
            self.decided = None
            self.state = OPEN if self.prepared is None else PREPARED
        if self.prepared is not None and self.prepared > last:
            self.prepared, self.count, self.participants = None, 0, []
            self.state = OPEN
        if self._named is not None and self._named > last:
            self.name = self._named = None
        return True

    def placed(self) -> Iterator[tuple[int, TxEnqueue | TxDequeue]]:
        """The events in order, each with the offset that the decision gives to its message."""
        assert self.decided is not None
        offset = offset_of(self.decided)
        for _, event in self.events:
            yield offset, event
            offset += 1

    def queues(self) -> set[int]:
        """The queues that this transaction touches."""
        return {*self.enqueued, *self.dequeued}

    def between(self, after: int, last: int) -> list[Run]:
        """Events with sequences above ``after`` and up to ``last``, in runs: the opening and the prepare are among
        them, but no decision.

        Copies references, however many those are, and makes no object for each.
        """
        head: Run = []
        if after < self.opened <= last:
            head.append((self.opened, self._opening()))
        if self._named is not None and after < self._named <= last:
            assert isinstance(self.name, bytes)
            head.append((self._named, TxToken(self.tx, self.name)))
        body: Run = self.events[self._index(after) : self._index(last)]  # type: ignore[assignment]
        closed = self.prepared is not None and after < self.prepared <= last
        tail: Run = [(self.prepared, self._closing())] if self.prepared is not None and closed else []
        return [run for run in (head, body, tail) if run]

    def give_away(self, leftovers: Leftovers) -> None:
        """It has ended: nothing looks at its events any more."""
        leftovers.add(self.events)
        leftovers.add(self.removals, max([len(each.entries) for each in self.removals], default=1))

    def _index(self, sequence: int) -> int:
        """How many events stand up to there."""
        return bisect_right(self.events, sequence, key=lambda placed: placed[0])

    def _count(self, event: TxEnqueue | TxDequeue, times: int) -> None:
        """One event more, or less."""
        if isinstance(event, TxEnqueue):
            self.size += times * size_of(event.message)
            self.steps += times * len(event.queues)
            for queue in event.queues:
                _add(self.enqueued, queue, times)
        else:
            self.steps += times * len(event.entries)
            _add(self.dequeued, event.queue, times * len(event.entries))

    def _prepare(self, sequence: int, event: TxPrepare | DtxPrepare) -> None:
        self.state = TX_TABLE.next(self.state, "prepare")
        self.prepared, self.count, self.participants = sequence, event.count, event.participants

    def _opening(self) -> TxEvent:
        return TxOpen(self.tx)

    def _closing(self) -> TxEvent:
        return TxPrepare(self.tx, self.count, self.participants)


class DtxBuffer(TxBuffer):
    """The same for a branch. ``prepared_ms``: when it was prepared to stay, in milliseconds since 1970."""

    def __init__(self, tx: int, opened: int, xid: Xid) -> None:
        super().__init__(tx, opened)
        self.name = self.xid = xid
        self.prepared_ms = 0

    def add(self, sequence: int, event: TxEvent) -> None:
        if isinstance(event, DtxPrepare):
            self._prepare(sequence, event)
            self.stays, self.prepared_ms = True, event.at_ms
        else:
            super().add(sequence, event)

    def truncate(self, last: int) -> bool:
        remains = super().truncate(last)
        self.stays = self.stays and self.prepared is not None
        return remains

    def _opening(self) -> TxEvent:
        return DtxOpen(self.tx, self.xid)

    def _closing(self) -> TxEvent:
        if self.stays:
            return DtxPrepare(self.tx, self.count, self.participants, self.prepared_ms)
        return super()._closing()


def _add(counts: dict[int, int], queue: int, count: int) -> None:
    there = counts.get(queue, 0) + count
    if there:
        counts[queue] = there
    else:
        counts.pop(queue, None)


def opened_by(event: TxEvent, sequence: int) -> TxBuffer:
    """The buffer that this first event of a tx-queue opens. Raises IllegalTransition if it is no opening."""
    if isinstance(event, TxOpen):
        return TxBuffer(event.tx, sequence)
    if isinstance(event, DtxOpen):
        return DtxBuffer(event.tx, sequence, event.xid)
    raise IllegalTransition(f"transaction {id_text(event.tx)} was never opened")
