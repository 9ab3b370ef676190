"""TransactionObserver: turns what a client does inside a transaction into events of its tx-queue (seed 003)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from txobserver.events import Message, Removal, TxDequeue, TxEnqueue, TxEvent, TxOpen
from txobserver.ids import MAX_TRANSACTION_EVENTS, generated_id, id_text
from txobserver.ledger import Done


class TxSink(Protocol):
    """Where an observer's events go: the active primary."""

    def tx_event(self, event: TxEvent) -> None:
        """Append an event of a tx-queue; without effect when this is no longer the primary that began it."""
        ...

    def tx_commit(self, tx: int, count: int, done: Done) -> None:
        """Close the tx-queue, prepare and decide."""
        ...

    def tx_rollback(self, tx: int) -> None:
        """Abort the transaction."""
        ...


class TransactionObserver:
    """One transaction at the primary. The tx-queue is opened by the first event, so an empty one costs nothing."""

    def __init__(self, tx: int, sink: TxSink, next_rid: Callable[[], int]) -> None:
        self.tx = tx
        self._sink = sink
        self._next_rid = next_rid
        self._count = 0
        self._closed = False

    def enqueue(self, queues: Sequence[int], message: Message) -> None:
        """A publish inside the transaction to these durable queues."""
        self._append(TxEnqueue(self.tx, self._next_rid(), tuple(queues), message))

    def dequeue(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal = Removal.ACKED) -> None:
        """Messages (place, replication id) settled inside the transaction."""
        self._append(TxDequeue(self.tx, queue, list(entries), int(reason)))

    def commit(self, done: Done) -> None:
        """Prepare, decide, and call ``done`` when every node that counts has the decision on disk."""
        self._close()
        if not self._count:
            done(None)
        elif self._count > MAX_TRANSACTION_EVENTS:
            self._sink.tx_rollback(self.tx)
            done(f"the transaction has {self._count} events; {MAX_TRANSACTION_EVENTS} is the most that one can have")
        else:
            self._sink.tx_commit(self.tx, self._count, done)

    def rollback(self) -> None:
        """Forget everything (PROTOCOL: a TX rollback may be answered at once)."""
        self._close()
        if self._count:
            self._sink.tx_rollback(self.tx)

    def _append(self, event: TxEvent) -> None:
        if self._closed:
            raise ValueError(f"transaction {id_text(self.tx)} has ended and takes no more events")
        if not self._count:
            self._sink.tx_event(TxOpen(self.tx))
        self._count += 1
        if self._count <= MAX_TRANSACTION_EVENTS:
            self._sink.tx_event(event)

    def _close(self) -> None:
        if self._closed:
            raise ValueError(f"transaction {id_text(self.tx)} has ended already")
        self._closed = True


class TransactionObserverFactory:
    """Gives each transaction of one generation an id that no other can have."""

    def __init__(self, generation: int, sink: TxSink, next_rid: Callable[[], int]) -> None:
        self._generation = generation
        self._sink = sink
        self._next_rid = next_rid
        self._counter = 0

    def begin(self) -> TransactionObserver:
        """The observer of a new transaction."""
        self._counter += 1
        return TransactionObserver(generated_id(self._generation, self._counter), self._sink, self._next_rid)
