"""TransactionObserver: turns what a client does inside a transaction into events of its tx-queue (seed 003)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from txobserver.events import DtxOpen, Message, Removal, TxDequeue, TxEnqueue, TxEvent, TxOpen, TxToken
from txobserver.ids import LAST_COUNTER, generated_id, id_text
from txobserver.message_size import size_of
from txobserver.outcomes import Name
from txobserver.ports.ledger import Done, NameInUse
from txobserver.work_limits import OpenWork, WorkLimits
from txobserver.xid import MAX_PART, Xid

NO_ID_LEFT = "this generation has no id left for it; promote another node or restart this one, and do it again"


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

    def in_use(self, name: Name) -> bool:
        """Whether a transaction whose events have come has this name, or an outcome that forbids another one."""
        ...


class BranchSink(Protocol):
    """What else a branch needs of the active primary."""

    def prepare(self, tx: int, count: int, done: Done) -> None:
        """Close the tx-queue, and prepare to stay."""
        ...

    def commit_one_phase(self, tx: int, count: int, done: Done) -> None:
        """Close the tx-queue, prepare and decide."""
        ...


class WorkObserver(ABC):
    """What transactions and branches have in common (``txobserver.ports.ledger.Work``).

    The tx-queue is opened by the first event, so an empty one costs nothing. One that grows beyond a limit is aborted
    at once, since every node holds it in memory; its commit says why. So does that of one with the id 0, for which
    there was no id left. ``client``: what the client that has begun it has open.
    """

    def __init__(self, tx: int, sink: TxSink, factory: TransactionObserverFactory, client: OpenWork) -> None:
        self.tx = tx
        self._sink = sink
        self._factory = factory
        self._client = client
        self._name: Name | None = None
        self._count = 0
        self._bytes = 0
        self._refusal: str | None = None if tx else NO_ID_LEFT
        self._closed = False
        self._released = False

    def enqueue(self, queues: Sequence[int], message: Message) -> None:
        """A publish inside the transaction to these durable queues."""
        rid = self._factory.next_rid()
        if not rid and not self._closed and self._refusal is None:
            self._refusal = NO_ID_LEFT
            self._abort()
        self._append(TxEnqueue(self.tx, rid, tuple(queues), message), size_of(message))

    def dequeue(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal = Removal.ACKED) -> None:
        """Messages (offset, replication id) settled inside the transaction."""
        self._append(TxDequeue(self.tx, queue, list(entries), int(reason)))

    @abstractmethod
    def _open(self) -> None:
        """Append the opening of the tx-queue."""

    def _append(self, event: TxEvent, size: int = 0) -> None:
        if self._closed:
            raise ValueError(f"transaction {id_text(self.tx)} has ended and takes no more events")
        if self._refusal is not None:
            return
        factory, client = self._factory, self._client
        if (
            self._count >= factory.most_events
            or self._bytes + size > factory.most_bytes
            or client.open_bytes + size > factory.most_client_bytes
            or factory.open_bytes + size > factory.most_open_bytes
        ):
            self._refusal = self._why_too_large(size)
            self._abort()
            return
        if not self._count:
            self._open()
        self._count += 1
        self._bytes += size
        client.open_events += 1
        client.open_bytes += size
        factory.open_events += 1
        factory.open_bytes += size
        self._sink.tx_event(event)

    def _why_too_large(self, size: int) -> str:
        """Which limit one event more, with a message of ``size`` bytes, would pass."""
        factory = self._factory
        if self._count >= factory.most_events:
            return f"the transaction has more than the {factory.most_events} events that one can have"
        if self._bytes + size > factory.most_bytes:
            return f"the transaction's messages have more than the {factory.most_bytes} bytes that one can have"
        if self._client.open_bytes + size > factory.most_client_bytes:
            return (
                f"the messages of the open transactions of this connection would have more than the "
                f"{factory.most_client_bytes} bytes that those of one can have"
            )
        return f"the messages of all open transactions would have more than {factory.most_open_bytes} bytes"

    def _abort(self) -> None:
        self._release()
        if self._count:
            self._sink.tx_rollback(self.tx)

    def _close(self, done: Done | None) -> bool:
        """No more events; returns whether there is something to end. If there is not, ``done`` has been called."""
        if self._closed:
            raise ValueError(f"transaction {id_text(self.tx)} has ended already")
        self._closed = True
        self._release()
        self._factory.ended(self._name)
        if self._count and self._refusal is None:
            return True
        if done is not None:
            done(self._refusal)
        return False

    def _release(self) -> None:
        """What is in it is open no more, and is counted for neither the client nor the node."""
        if not self._released:
            self._released = True
            for open_work in (self._client, self._factory):
                open_work.open_bytes -= self._bytes
                open_work.open_events -= self._count


class TransactionObserver(WorkObserver):
    """One plain transaction at the primary (an ``Observer``)."""

    def __init__(self, tx: int, sink: TxSink, factory: TransactionObserverFactory, client: OpenWork) -> None:
        super().__init__(tx, sink, factory, client)
        self._token: bytes | None = None

    def name(self, token: bytes) -> None:
        """Remember the outcome under this token, 1 to 64 bytes. Raises NameInUse, ValueError."""
        if not 1 <= len(token) <= MAX_PART:
            raise ValueError(f"a token has 1 to {MAX_PART} bytes, not {len(token)}")
        if self._closed or self._token is not None:
            raise ValueError(f"transaction {id_text(self.tx)} has {'ended' if self._closed else 'a token'} already")
        self._factory.use(token)
        self._name = self._token = token
        if self._count and self._refusal is None:
            self._sink.tx_event(TxToken(self.tx, token))

    def commit(self, done: Done) -> None:
        """Prepare, decide, and call ``done`` when every node that counts has the decision on disk."""
        if self._close(done):
            self._sink.tx_commit(self.tx, self._count, done)

    def rollback(self) -> None:
        """Forget everything. May be answered at once, since no prepare was sent."""
        if self._close(None):
            self._sink.tx_rollback(self.tx)

    def _open(self) -> None:
        self._sink.tx_event(TxOpen(self.tx))
        if self._token is not None:
            self._sink.tx_event(TxToken(self.tx, self._token))


class DtxObserver(WorkObserver):
    """One branch at the primary, until it is prepared (a ``BranchObserver``)."""

    def __init__(
        self,
        tx: int,
        xid: Xid,
        sink: TxSink,
        branches: BranchSink,
        factory: TransactionObserverFactory,
        client: OpenWork,
    ) -> None:
        super().__init__(tx, sink, factory, client)
        self.xid = self._name = xid
        self._branches = branches

    @property
    def empty(self) -> bool:
        """Whether there is nothing to prepare or to commit."""
        return not self._count

    def prepare(self, done: Done) -> None:
        """Prepare to stay: ``done(None)`` when every node that counts has it on disk."""
        if self._close(done):
            self._branches.prepare(self.tx, self._count, done)

    def commit_one_phase(self, done: Done) -> None:
        """Prepare and decide in one go."""
        if self._close(done):
            self._branches.commit_one_phase(self.tx, self._count, done)

    def rollback(self, done: Done) -> None:
        """Forget everything. No prepare was sent, so it is answered at once."""
        if self._close(None):
            self._sink.tx_rollback(self.tx)
        done(None)

    def _open(self) -> None:
        self._sink.tx_event(DtxOpen(self.tx, self.xid))


class TransactionObserverFactory(OpenWork):
    """Gives each transaction of one generation an id that no other can have.

    As ``OpenWork`` it counts transactions that are open, and branches that are prepared. ``next_rid`` gives a
    replication id for a message, 0 if there is none left. ``most_...``: the limits, one by one.
    """

    def __init__(
        self, generation: int, sink: TxSink, next_rid: Callable[[], int], limits: WorkLimits | None = None
    ) -> None:
        super().__init__()
        self.next_rid = next_rid
        most = limits if limits is not None else WorkLimits()
        self.most_events = most.events
        self.most_bytes = most.bytes
        self.most_client_bytes = most.client_bytes
        self.most_open_bytes = most.open_bytes
        self._generation = generation
        self._sink = sink
        self._counter = 0
        self._names: set[Name] = set()

    def begin(self, token: bytes | None = None, client: OpenWork | None = None) -> TransactionObserver:
        """The observer of a new transaction of this client. Raises NameInUse, ValueError for its token."""
        observer = TransactionObserver(self._next_tx(), self._sink, self, client if client is not None else OpenWork())
        if token is not None:
            observer.name(token)
        return observer

    def begin_branch(self, xid: Xid, branches: BranchSink, client: OpenWork | None = None) -> DtxObserver:
        """The observer of a new branch of this client. Raises NameInUse."""
        self.use(xid)
        work = client if client is not None else OpenWork()
        return DtxObserver(self._next_tx(), xid, self._sink, branches, self, work)

    def use(self, name: Name) -> None:
        """A transaction that has not ended takes this name. Raises NameInUse."""
        if name in self._names or self._sink.in_use(name):
            raise NameInUse(f"{'xid' if isinstance(name, Xid) else 'token'} {name!s} is in use")
        self._names.add(name)

    def is_open(self, name: Name) -> bool:
        """Whether a transaction of this name has not been closed, with or without events."""
        return name in self._names

    def ended(self, name: Name | None) -> None:
        """The observer of this name takes no more: what its events led to has the name now."""
        if name is not None:
            self._names.discard(name)

    def _next_tx(self) -> int:
        if self._counter >= LAST_COUNTER:
            return 0
        self._counter += 1
        return generated_id(self._generation, self._counter)
