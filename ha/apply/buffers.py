"""Buffers: the transactions that have not ended, and what of them the next checkpoint must tell."""

from __future__ import annotations

from txobserver.events import DtxOpen, TxEvent, TxToken
from txobserver.leftovers import Leftovers
from txobserver.ports.store import TxRun
from txobserver.state.transaction_table import TransactionTable
from txobserver.tx_buffer import TxBuffer, opened_by


class Buffers:
    """``open``: a TxBuffer for each transaction that has not ended, by its id.

    ``leftovers`` gets what is needed no more.
    """

    def __init__(self, table: TransactionTable, saved_to: int, leftovers: Leftovers) -> None:
        self.open: dict[int, TxBuffer] = {}
        self._table = table
        self._leftovers = leftovers
        self._ended: list[int] = []
        self._saving: list[TxRun] = []
        self._saved_to = saved_to

    def take(self, tx: int, sequence: int, event: TxEvent) -> None:
        """The next event of a tx-queue. Raises IllegalTransition if it cannot follow."""
        buffer = self.open.get(tx)
        if buffer is not None:
            buffer.add(sequence, event)
            if isinstance(event, TxToken):
                self._table.named(buffer)
        else:
            buffer = self.open[tx] = opened_by(event, sequence)
            if isinstance(event, DtxOpen):
                self._table.named(buffer)

    def end(self, tx: int) -> TxBuffer:
        """The decision of this transaction is applied now."""
        buffer = self.open.pop(tx)
        if buffer.opened <= self._saved_to:  # else no checkpoint has ever heard of it
            self._ended.append(tx)
        return buffer

    def undecided(self) -> list[TxBuffer]:
        """Transactions without a decision in this log."""
        return [buffer for buffer in self.open.values() if buffer.decided is None]

    def truncate(self, last: int, applied: int) -> None:
        """Forget everything after sequence ``last``."""
        for tx in [tx for tx, buffer in self.open.items() if not buffer.truncate(last)]:
            del self.open[tx]
        self._table.rebuilt(self.open.values(), applied)

    def drop_all(self) -> None:
        """None of them counts any more."""
        self._ended.extend(self.open)
        for buffer in self.open.values():
            buffer.give_away(self._leftovers)
        self.open.clear()

    def rebuild(self, transactions: dict[int, list[tuple[int, TxEvent]]], applied: int) -> None:
        """These are the transactions that have not ended."""
        for tx, events in transactions.items():
            for sequence, event in events:
                self.take(tx, sequence, event)
        self._table.rebuilt(self.open.values(), applied)

    def save_all(self) -> None:
        """The next checkpoint must tell every event."""
        self._saved_to = 0

    def changes(self, last: int) -> tuple[list[TxRun], list[int]]:
        """Since the last call, up to sequence ``last``: events in runs, and who has ended. Ends with ``saved``.

        Costs the same however many events those are, but for copies of references.
        """
        self._saving = [
            TxRun(buffer.tx, run) for buffer in self.open.values() for run in buffer.between(self._saved_to, last)
        ]
        self._saved_to = last
        ended, self._ended = self._ended, []
        return self._saving, ended

    def saved(self) -> None:
        """What ``changes`` told last is on the disk, and its writer uses it no more."""
        for each in self._saving:
            self._leftovers.add(each.events)
        self._saving = []
