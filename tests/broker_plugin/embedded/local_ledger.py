"""A ledger in memory: one node that is its own ready set. What is asked becomes visible only at ``commit``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ha.effects import ReadQueue
from ha.primary.readings import Readings
from ha.primary.refusals import Refusals
from txobserver.events import (
    Configure,
    Delivered,
    Event,
    Message,
    Publish,
    Purge,
    Removal,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxEvent,
    TxPrepare,
    purge_of,
)
from txobserver.ids import generated_id, place_of
from txobserver.observer import TransactionObserver, TransactionObserverFactory
from txobserver.outcomes import Name
from txobserver.ports.ledger import Done, Found, Host
from txobserver.ports.store import Asked, Checkpoint, MemoryBase, Meta, Page
from txobserver.state.applied_content import AppliedContent
from txobserver.state.contents import Contents
from txobserver.tx_buffer import TxBuffer

Pending = tuple[int, Event, Done | None]


class LocalLedger:
    """Implements ``Ledger`` and ``TxSink``. ``on_append`` is called when something waits for ``commit``.

    With ``refuse`` set to a sentence, publishes with a confirm, configuration and commits are refused with it.
    """

    def __init__(self, generation: int = 1, base: MemoryBase | None = None, meta: Meta | None = None) -> None:
        self.contents = Contents(base or MemoryBase(), meta or Meta())
        self.refuse: str | None = None
        self.on_append: Callable[[], object] = lambda: None
        self.log: list[Event] = []
        self._generation = generation
        self._host: Host | None = None
        self._sequence = self.contents.applied.sequence
        self._pending: deque[Pending] = deque()
        self._group_start = 0
        self._additions: dict[int, list[int]] = {}
        self._buffers: dict[int, TxBuffer] = {}
        self._rids = 0
        self._config_id = self.contents.configuration.last_id
        self._refusals = Refusals()
        self._factory = TransactionObserverFactory(generation, self, self._next_rid)
        self._readings = Readings(generation, self.contents)
        self._reads: list[ReadQueue] = []
        self._pages: list[tuple[ReadQueue, Page]] = []

    def serve(self, host: Host) -> None:
        """Make the host active."""
        self._host = host
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
        return bool(self._pending or self._reads or self._pages)

    # -- Ledger

    def configure(self, step: Configure, done: Done) -> None:
        if self.refuse:
            done(self.refuse)
            return
        self._config_id += 1
        numbered = Configure(self._config_id, step.operation, step.name, step.arguments, step.terms)
        self._append(numbered, self._refusals.answer(self._config_id, done))

    def publish(self, queues: Sequence[int], message: Message, done: Done | None) -> None:
        if self.refuse and done is not None:
            done(self.refuse)
            return
        sequence = self._append(Publish(self._next_rid(), tuple(queues), message), done)
        for queue in queues:
            self._additions.setdefault(queue, []).append(place_of(sequence))

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        self._append(Settle(queue, list(entries), int(reason)))

    def purge(self, queue: int, place: int, spared: Sequence[tuple[int, int]], done: Done) -> None:
        self._append(purge_of(queue, place, spared), done)

    def mark(self, queue: int, place: int) -> None:
        self._append(Delivered(queue, place))

    def read(self, asked: Asked, then: Callable[[Found], None]) -> None:
        self._reads.append(self._readings.begin(asked, then))
        self.on_append()

    def begin(self, token: bytes | None = None) -> TransactionObserver:
        return self._factory.begin(token)

    def is_open(self, token: bytes) -> bool:
        return self._factory.is_open(token)

    # -- TxSink

    def tx_event(self, event: TxEvent) -> None:
        sequence = self._append(event)
        if event.tx in self._buffers:
            self._buffers[event.tx].add(sequence, event)
        else:
            self._buffers[event.tx] = TxBuffer(event.tx, sequence)

    def tx_commit(self, tx: int, count: int, done: Done) -> None:
        if self.refuse:
            self.tx_rollback(tx)
            done(self.refuse)
            return
        self.tx_event(TxPrepare(tx, count, []))
        sequence = self._append(TxDecision(tx, True), done)
        buffer = self._buffers[tx]
        buffer.add(sequence, TxDecision(tx, True))
        for place, event in buffer.placed():
            if isinstance(event, TxEnqueue):
                for queue in event.queues:
                    self._additions.setdefault(queue, []).append(place)

    def tx_rollback(self, tx: int) -> None:
        self._append(TxDecision(tx, False))

    def in_use(self, name: Name) -> bool:
        return self.contents.table.in_use(name)

    # -- the commit point

    def flush(self) -> None:
        """End the group that is being gathered: mark what consumers can take of it."""
        additions, self._additions = self._additions, {}
        for queue, places in additions.items():
            wanted = self._host.appetite(queue, len(places)) if self._host else 0
            if wanted > 0:
                self._append(Delivered(queue, places[min(wanted, len(places)) - 1]))

    def commit(self, events: int | None = None) -> None:
        """Everything asked so far (or so many events) passes the commit point: apply it, tell the host, answer."""
        self.read_pages()
        self.flush()
        dones: list[Done] = []
        for _ in range(len(self._pending) if events is None else min(events, len(self._pending))):
            sequence, event, done = self._pending.popleft()
            self._apply(sequence, event)
            self.log.append(event)
            if done is not None:
                dones.append(done)
        for done in dones:
            done(None)

    def read_pages(self) -> None:
        """The store's reader: what it has looked at comes, and it looks at what was asked for since."""
        pages, self._pages = self._pages, []
        for asked, page in pages:
            self._readings.came(asked, page)
        self._pages = [(asked, self.contents.layers.base.read(asked.asked)) for asked in self._reads]
        self._reads = []

    def commit_all(self) -> None:
        """Commit until nothing waits."""
        while self.busy or self._additions:
            self.commit()

    def lose(self) -> None:
        """What has not passed the commit point is lost; its outcome is never told."""
        self._pending.clear()
        self._additions.clear()
        self._readings.abandon()
        self._reads, self._pages = [], []

    def _append(self, event: Event, done: Done | None = None) -> int:
        self._sequence += 1
        self._pending.append((self._sequence, event, done))
        if len(self._pending) == 1:
            self.on_append()
        return self._sequence

    def _apply(self, sequence: int, event: Event) -> None:
        host, contents = self._host, self.contents
        assert host is not None
        contents.applied = contents.applied._replace(generation=self._generation, sequence=sequence)
        if isinstance(event, Publish):
            self._insert(place_of(sequence), event)
        elif isinstance(event, Settle):
            self._remove(event)
        elif isinstance(event, Delivered):
            contents.queues.mark(event.queue, event.place)
            host.on_mark(event.queue, event.place)
        elif isinstance(event, Configure):
            self._configure(event)
        elif isinstance(event, Purge):
            rids = dict(zip(event.spared, event.rids, strict=True))
            count = contents.queues.purge(event.queue, event.place, event.spared, rids)
            host.on_purged(event.queue, event.place, event.spared, count)
        elif isinstance(event, TxDecision):
            self._decide(event)

    def _insert(self, place: int, event: Publish | TxEnqueue) -> None:
        assert self._host is not None
        for queue in event.queues:
            if self.contents.queues.insert(queue, place, event.rid, event.message):
                self._host.on_enqueued(queue, place, event.rid, event.message)

    def _remove(self, event: Settle | TxDequeue) -> None:
        assert self._host is not None
        gone = [entry for entry in event.entries if self.contents.queues.remove(event.queue, *entry)]
        if gone:
            self._host.on_removed(event.queue, gone, Removal(event.reason))

    def _configure(self, step: Configure) -> None:
        assert self._host is not None
        done = self.contents.configure(step)
        self._refusals.applied(step.config_id, done.refusal)
        self._host.on_configured(step, done)

    def _decide(self, event: TxDecision) -> None:
        buffer = self._buffers.pop(event.tx)
        if event.commit:
            for place, part in buffer.placed():
                if isinstance(part, TxEnqueue):
                    self._insert(place, part)
                else:
                    self._remove(part)

    def _next_rid(self) -> int:
        self._rids += 1
        return generated_id(self._generation, self._rids)


def commit_each_turn(ledger: LocalLedger, schedule: Callable[[Callable[[], None]], object]) -> None:
    """Let everything pass the commit point one turn of the event loop after it was asked."""
    ledger.on_append = partial(schedule, ledger.commit_all)
