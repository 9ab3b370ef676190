"""Transactions between their prepare and their decision, at the primary (PROTOCOL, "A transaction", 3 and 4)."""

from __future__ import annotations

from typing import Protocol

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
    """What it takes to close a tx-queue and to decide."""

    def append(self, event: TxPrepare) -> int:
        """Give the prepare its position."""
        ...

    def decide(self, tx: int, commit: bool, done: Done | None) -> None:
        """Give the decision its position."""
        ...

    def answer(self, done: Done, outcome: str | None) -> None:
        """Tell an outcome to whoever still waits for it."""
        ...


class Transactions:
    """Every participant votes by acknowledging the prepare (ok) or by cancelling (fail)."""

    def __init__(self, primary: Decider) -> None:
        self._primary = primary
        self._preparing: dict[int, Done] = {}

    def prepare(self, tx: int, count: int, participants: list[str], done: Done) -> None:
        """Close the tx-queue of ``count`` events; the participants are fixed by this."""
        self._preparing[tx] = done
        self._primary.append(TxPrepare(tx, count, list(participants)))

    def prepared(self, tx: int) -> None:
        """Every participant has prepared durably: decide to commit, unless one failed before."""
        done = self._preparing.pop(tx, None)
        if done is not None:
            self._primary.decide(tx, True, done)

    def cancel(self, tx: int, reason: str) -> None:
        """A participant failed: roll back everywhere. An answer "rolled back" needs no waiting (TX)."""
        done = self._preparing.pop(tx, None)
        if done is not None:
            self._primary.decide(tx, False, None)
            self._primary.answer(done, f"the transaction was rolled back: {reason}")

    def cancel_all(self, reason: str) -> None:
        """Roll back everything that is not decided."""
        for tx in list(self._preparing):
            self.cancel(tx, reason)
