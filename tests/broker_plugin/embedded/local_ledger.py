"""A ledger in memory: one node that is its own ready set. What is asked becomes visible only at ``commit``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ha.primary.additions import Additions
from ha.primary.refusals import Refusals
from tests.broker_plugin.embedded.local_replica import LocalReader, LocalReplica
from txobserver.batch import NUMBER, numbers_of
from txobserver.ends import ReplicationIds
from txobserver.events import (
    Configure,
    Delivered,
    Event,
    Message,
    Publish,
    Removal,
    Settle,
    TxDecision,
    TxEvent,
    TxPrepare,
    purge_of,
)
from txobserver.ids import offset_of
from txobserver.observer import TransactionObserver, TransactionObserverFactory
from txobserver.outcomes import Name
from txobserver.ports.ledger import Done, Found, Host
from txobserver.ports.store import Asked, Checkpoint, MemoryBase, Meta
from txobserver.state.applied_content import AppliedContent
from txobserver.state.contents import Contents
from txobserver.work_limits import OpenWork

Pending = tuple[int, Event, Done | None]


class LocalLedger:
    """Implements ``Ledger`` and ``TxSink``. ``on_append`` is called when something waits for ``commit``.

    Many methods: both interfaces lead into one list of what waits for the commit point, and a test moves that.
    With ``refuse`` set to a sentence, publishes with a confirm, configuration and commits are refused with it.
    """

    def __init__(self, generation: int = 1, base: MemoryBase | None = None, meta: Meta | None = None) -> None:
        self.contents = Contents(base or MemoryBase(), meta or Meta())
        self.refuse: str | None = None
        self.on_append: Callable[[], object] = lambda: None
        self.log: list[Event] = []
        self._generation = generation
        self._sequence = self.contents.applied.sequence
        self._pending: deque[Pending] = deque()
        self._additions = Additions(self.contents.queues)
        self._rids = ReplicationIds(generation)
        self._config_id = self.contents.configuration.last_id
        self._refusals = Refusals()
        self._factory = TransactionObserverFactory(generation, self, self._rids.next)
        self.open_work: OpenWork = self._factory
        self._replica = LocalReplica(generation, self.contents, self._refusals)
        self.reader = LocalReader(generation, self.contents)

    def serve(self, host: Host) -> None:
        """Make the host active."""
        self._replica.host = host
        host.on_active(self, AppliedContent(self.contents))

    def successor(self) -> LocalLedger:
        """The ledger of the next generation, with all that was applied."""
        changes, dropped = self.contents.freeze()
        meta = self.contents.meta([])
        base = self.contents.layers.base
        assert isinstance(base, MemoryBase)
        base.write(Checkpoint(meta, changes, dropped, [], []))
        return LocalLedger(self._generation + 1, base, meta)

    @property
    def busy(self) -> bool:
        """Whether anything waits for the commit point."""
        return bool(self._pending) or self.reader.busy

    # -- Ledger

    def configure(self, step: Configure, done: Done) -> None:
        if self.refuse:
            done(self.refuse)
            return
        for _ in range(numbers_of(step)):
            self._config_id += 1
            self._append(Configure(self._config_id, NUMBER, "*", b""))
        self._config_id += 1
        numbered = Configure(self._config_id, step.operation, step.name, step.arguments, step.terms)
        self._append(numbered, self._refusals.answer(self._config_id, done))

    def publish(self, queues: Sequence[int], message: Message, done: Done | None) -> None:
        if self.refuse and done is not None:
            done(self.refuse)
            return
        sequence = self._append(Publish(self._rids.next(), tuple(queues), message), done)
        self._additions.add(queues, offset_of(sequence))

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        self._append(Settle(queue, list(entries), int(reason)))

    def purge(self, queue: int, offset: int, spared: Sequence[tuple[int, int]], done: Done) -> None:
        self._append(purge_of(queue, offset, spared), done)

    def raise_watermark(self, queue: int, offset: int) -> None:
        self._append(Delivered(queue, offset))

    def grant(self, queue: int, messages: int, announced: int) -> None:
        self._additions.grant(queue, messages, announced)

    def read(self, asked: Asked, then: Callable[[Found], None]) -> None:
        self.reader.ask(asked, then)
        self.on_append()

    def begin(self, token: bytes | None = None, client: OpenWork | None = None) -> TransactionObserver:
        return self._factory.begin(token, client)

    def is_open(self, token: bytes) -> bool:
        return self._factory.is_open(token)

    # -- TxSink

    def tx_event(self, event: TxEvent) -> None:
        self._replica.tx_event(self._append(event), event)

    def tx_commit(self, tx: int, count: int, done: Done) -> None:
        if self.refuse:
            self.tx_rollback(tx)
            done(self.refuse)
            return
        self.tx_event(TxPrepare(tx, count, []))
        sequence = self._append(TxDecision(tx, True), done)
        buffer = self._replica.buffers[tx]
        buffer.add(sequence, TxDecision(tx, True))
        self._additions.committed(buffer)

    def tx_rollback(self, tx: int) -> None:
        self._append(TxDecision(tx, False))

    def in_use(self, name: Name) -> bool:
        return self.contents.table.in_use(name)

    # -- the commit point

    def flush(self) -> None:
        """End the group that is being gathered: mark what consumers can take of it."""
        for delivered in self._additions.end(self._replica.host):
            self._append(delivered)

    def commit(self, events: int | None = None) -> None:
        """Everything asked so far (or so many events) passes the commit point: apply it, tell the host, answer."""
        self.reader.step()
        self.flush()
        dones: list[Done] = []
        for _ in range(len(self._pending) if events is None else min(events, len(self._pending))):
            sequence, event, done = self._pending.popleft()
            self._replica.apply(sequence, event)
            self.log.append(event)
            if done is not None:
                dones.append(done)
        for done in dones:
            done(None)

    def commit_all(self) -> None:
        """Commit until nothing waits."""
        while self.busy or self._additions.waiting:
            self.commit()

    def lose(self) -> None:
        """What has not passed the commit point is lost; its outcome is never told."""
        self._pending.clear()
        self._additions = Additions(self.contents.queues)
        self.reader.lose()

    def _append(self, event: Event, done: Done | None = None) -> int:
        self._sequence += 1
        self._pending.append((self._sequence, event, done))
        if len(self._pending) == 1:
            self.on_append()
        return self._sequence


def commit_each_turn(ledger: LocalLedger, schedule: Callable[[Callable[[], None]], object]) -> None:
    """Let everything pass the commit point one turn of the event loop after it was asked."""
    ledger.on_append = partial(schedule, ledger.commit_all)
