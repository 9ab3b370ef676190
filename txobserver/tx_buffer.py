"""TxBuffer: what a node holds of one transaction before its outcome is known (seed 003, PROTOCOL "A transaction").

It is built when events are received, long before they may be applied, on the primary and on every backup alike.
Events keep their sequences, so that the tail of the stream can be cut off again (``truncate``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from txobserver.events import TxDecision, TxDequeue, TxEnqueue, TxEvent, TxOpen, TxPrepare
from txobserver.ids import id_text, place_of
from txobserver.table import IllegalTransition, Table

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
        (OPEN, "prepare"): PREPARED,
        (OPEN, "abort"): ABORTED,
        (PREPARED, "commit"): COMMITTED,
        (PREPARED, "abort"): ABORTED,
    },
)


class TxBuffer:
    """One transaction's events, its state, and where it was opened, closed and decided (sequences, or None)."""

    def __init__(self, tx: int, opened: int) -> None:
        self.tx = tx
        self.opened = opened
        self.state = OPEN
        self.prepared: int | None = None
        self.decided: int | None = None
        self.count = 0
        self.participants: list[str] = []
        self.events: list[tuple[int, TxEnqueue | TxDequeue]] = []

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
        elif isinstance(event, TxDequeue):
            self.state = TX_TABLE.next(self.state, "dequeue")
            self.events.append((sequence, event))
        elif isinstance(event, TxPrepare):
            self.state = TX_TABLE.next(self.state, "prepare")
            self.prepared, self.count, self.participants = sequence, event.count, event.participants
        elif isinstance(event, TxDecision):
            self.state = TX_TABLE.next(self.state, "commit" if event.commit else "abort")
            self.decided = sequence
        else:
            raise IllegalTransition(f"transaction {id_text(self.tx)} was opened twice")

    def truncate(self, last: int) -> bool:
        """Forget what came after sequence ``last``; returns whether anything of the transaction remains."""
        if self.opened > last:
            return False
        while self.events and self.events[-1][0] > last:
            self.events.pop()
        if self.decided is not None and self.decided > last:
            self.decided = None
            self.state = OPEN if self.prepared is None else PREPARED
        if self.prepared is not None and self.prepared > last:
            self.prepared, self.count, self.participants = None, 0, []
            self.state = OPEN
        return True

    def placed(self) -> Iterator[tuple[int, TxEnqueue | TxDequeue]]:
        """The events in order, each with the place that the decision gives to its message."""
        assert self.decided is not None
        place = place_of(self.decided)
        for _, event in self.events:
            yield place, event
            place += 1

    def queues(self) -> set[int]:
        """The queues that this transaction touches."""
        touched: set[int] = set()
        for _, event in self.events:
            touched.update(event.queues if isinstance(event, TxEnqueue) else (event.queue,))
        return touched

    def since(self, sequence: int) -> Iterator[tuple[int, TxEvent]]:
        """Events with sequences above ``sequence``, the opening and the prepare among them, but no decision."""
        if self.opened > sequence:
            yield self.opened, TxOpen(self.tx)
        for at, event in self.events:
            if at > sequence:
                yield at, event
        if self.prepared is not None and self.prepared > sequence:
            yield self.prepared, TxPrepare(self.tx, self.count, self.participants)
