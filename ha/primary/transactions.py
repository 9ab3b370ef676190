"""Transactions between their prepare and their decision, at the primary (PROTOCOL, "A transaction", 3 and 4)."""

from __future__ import annotations

from typing import Protocol

from ha.primary.commit_point import CommitPoint
from ha.primary.writer import Writer
from txobserver.events import TxPrepare
from txobserver.ports.ledger import Done
from txobserver.tx_buffer import TxBuffer


class TransactionWatcher(Protocol):
    """Told when a tx-queue is closed and when it is decided, before either event leaves the primary."""

    def participants(self) -> list[str]:
        """The nodes that take part in a transaction that is closed at this moment."""
        ...

    def closed(self, buffer: TxBuffer) -> None:
        """No more events; the participants are fixed."""

    def decided(self, tx: int, commit: bool, sequence: int) -> None:
        """The decision has its position."""

    def queue_deleted(self, queue: int) -> None:
        """A queue and all it held are gone."""


class Decider(Protocol):
    """Who decides."""

    def decide(self, tx: int, commit: bool, done: Done | None, heuristic: bool = False) -> None:
        """Give the decision its position, and answer when it has passed the commit point."""
        ...

    def refusal(self) -> str | None:
        """Why nothing new can be committed now."""
        ...

    def tx_commit(self, tx: int, count: int, done: Done) -> None:
        """Prepare and decide."""
        ...

    def tx_rollback(self, tx: int) -> None:
        """Abort what was never prepared."""
        ...


class Transactions:
    """Every participant votes by acknowledging the prepare (ok) or by cancelling (fail)."""

    def __init__(self, writer: Writer, point: CommitPoint, decider: Decider) -> None:
        self._writer = writer
        self._point = point
        self._decider = decider
        self._preparing: dict[int, Done] = {}

    def prepare(self, tx: int, count: int, participants: list[str], done: Done) -> None:
        """Close the tx-queue of ``count`` events; the participants are fixed by this."""
        self._preparing[tx] = done
        self._writer.append(TxPrepare(tx, count, list(participants)))

    def prepared(self, tx: int) -> None:
        """Every participant has prepared durably: decide to commit, unless one failed before."""
        done = self._preparing.pop(tx, None)
        if done is not None:
            self._decider.decide(tx, True, done)

    def cancel(self, tx: int, reason: str) -> None:
        """A participant failed: roll back everywhere. An answer "rolled back" needs no waiting (TX)."""
        done = self._preparing.pop(tx, None)
        if done is not None:
            self._decider.decide(tx, False, None)
            self._point.answer(done, f"the transaction was rolled back: {reason}")

    def cancel_all(self, reason: str) -> None:
        """Roll back everything that is not decided."""
        for tx in list(self._preparing):
            self.cancel(tx, reason)
