"""TransactionObserver: turns what a client does inside a transaction into events of its tx-queue (seed 003)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from txobserver.events import Message, Removal, TxDequeue, TxEnqueue, TxEvent, TxOpen
from txobserver.ids import MAX_OPEN_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_EVENTS, generated_id, id_text
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
    """One transaction at the primary. The tx-queue is opened by the first event, so an empty one costs nothing.

    One that grows beyond a limit is aborted at once, since every node holds it in memory; its commit says why.
    """

    def __init__(self, tx: int, sink: TxSink, factory: TransactionObserverFactory) -> None:
        self.tx = tx
        self._sink = sink
        self._factory = factory
        self._count = 0
        self._bytes = 0
        self._refusal: str | None = None
        self._closed = False

    def enqueue(self, queues: Sequence[int], message: Message) -> None:
        """A publish inside the transaction to these durable queues."""
        self._append(TxEnqueue(self.tx, self._factory.next_rid(), tuple(queues), message), len(message.body))

    def dequeue(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal = Removal.ACKED) -> None:
        """Messages (place, replication id) settled inside the transaction."""
        self._append(TxDequeue(self.tx, queue, list(entries), int(reason)))

    def name(self, token: bytes) -> None:
        """Remember the outcome under this token."""
        raise NotImplementedError

    def commit(self, done: Done) -> None:
        """Prepare, decide, and call ``done`` when every node that counts has the decision on disk."""
        self._close()
        if self._refusal is not None:
            done(self._refusal)
        elif not self._count:
            done(None)
        else:
            self._sink.tx_commit(self.tx, self._count, done)

    def rollback(self) -> None:
        """Forget everything (PROTOCOL: a TX rollback may be answered at once)."""
        self._close()
        if self._count and self._refusal is None:
            self._sink.tx_rollback(self.tx)

    def _append(self, event: TxEvent, size: int = 0) -> None:
        if self._closed:
            raise ValueError(f"transaction {id_text(self.tx)} has ended and takes no more events")
        if self._refusal is not None:
            return
        factory, sink = self._factory, self._sink
        if (
            self._count >= MAX_TRANSACTION_EVENTS
            or self._bytes + size > MAX_TRANSACTION_BYTES
            or factory.open_bytes + size > MAX_OPEN_BYTES
        ):
            self._refusal = self._why_too_large(size)
            self._abort()
            return
        if not self._count:
            sink.tx_event(TxOpen(self.tx))
        self._count += 1
        self._bytes += size
        factory.open_bytes += size
        sink.tx_event(event)

    def _why_too_large(self, size: int) -> str:
        """Which limit one event more, with a body of ``size`` bytes, would pass."""
        if self._count >= MAX_TRANSACTION_EVENTS:
            return f"the transaction has more than the {MAX_TRANSACTION_EVENTS} events that one can have"
        if self._bytes + size > MAX_TRANSACTION_BYTES:
            return f"the transaction's messages have more than the {MAX_TRANSACTION_BYTES} bytes that one can have"
        return f"the messages of all open transactions would have more than {MAX_OPEN_BYTES} bytes"

    def _abort(self) -> None:
        self._release()
        if self._count:
            self._sink.tx_rollback(self.tx)

    def _close(self) -> None:
        if self._closed:
            raise ValueError(f"transaction {id_text(self.tx)} has ended already")
        self._closed = True
        self._release()

    def _release(self) -> None:
        self._factory.open_bytes -= self._bytes
        self._bytes = 0


class TransactionObserverFactory:
    """Gives each transaction of one generation an id that no other can have.

    ``open_bytes``: the bodies of all messages of transactions that are open.
    """

    def __init__(self, generation: int, sink: TxSink, next_rid: Callable[[], int]) -> None:
        self.next_rid = next_rid
        self.open_bytes = 0
        self._generation = generation
        self._sink = sink
        self._counter = 0

    def begin(self) -> TransactionObserver:
        """The observer of a new transaction."""
        self._counter += 1
        return TransactionObserver(generated_id(self._generation, self._counter), self._sink, self)
