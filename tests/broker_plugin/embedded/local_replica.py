"""What the events of a ledger in memory lead to, and what reads it: replica and reader of the store of one node."""

from __future__ import annotations

from collections.abc import Callable

from ha.effects import ReadQueue
from ha.primary.readings import Readings
from ha.primary.refusals import Refusals
from txobserver.configuration import Configured
from txobserver.events import (
    Configure,
    Delivered,
    Event,
    Publish,
    Purge,
    Removal,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxEvent,
)
from txobserver.ids import offset_of
from txobserver.ports.ledger import Found, Host
from txobserver.ports.store import Asked, Page
from txobserver.state.contents import Contents
from txobserver.tx_buffer import TxBuffer


class LocalReader:
    """Reads pages for the host's queues, each with one look at the store and one answer, not in the same step."""

    def __init__(self, generation: int, contents: Contents) -> None:
        self.readings = Readings(generation, contents)
        self.asked: list[ReadQueue] = []
        self.pages: list[tuple[ReadQueue, Page]] = []
        self._contents = contents

    @property
    def busy(self) -> bool:
        return bool(self.asked or self.pages)

    def ask(self, asked: Asked, then: Callable[[Found], None]) -> None:
        self.asked.append(self.readings.begin(asked, then))

    def step(self) -> None:
        """What it has looked at comes, and it looks at what was asked for since."""
        pages, self.pages = self.pages, []
        for asked, page in pages:
            self.readings.came(asked, page)
        self.pages = [(asked, self._contents.layers.base.read(asked.asked)) for asked in self.asked]
        self.asked = []

    def lose(self) -> None:
        """No caller waits any more."""
        self.readings.abandon()
        self.asked, self.pages = [], []


class LocalReplica:
    """Applies what has passed the commit point to ``contents``, and tells the host. ``buffers``: the open tx-queues."""

    def __init__(self, generation: int, contents: Contents, refusals: Refusals) -> None:
        self.host: Host | None = None
        self.buffers: dict[int, TxBuffer] = {}
        self._generation = generation
        self._contents = contents
        self._refusals = refusals

    def tx_event(self, sequence: int, event: TxEvent) -> None:
        """An event of a tx-queue is in the stream."""
        if event.tx in self.buffers:
            self.buffers[event.tx].add(sequence, event)
        else:
            self.buffers[event.tx] = TxBuffer(event.tx, sequence)

    def apply(self, sequence: int, event: Event) -> None:
        """An event has passed the commit point."""
        host, contents = self.host, self._contents
        assert host is not None
        contents.applied = contents.applied._replace(generation=self._generation, sequence=sequence)
        if isinstance(event, Publish):
            self._insert(offset_of(sequence), event)
        elif isinstance(event, Settle):
            self._remove(event)
        elif isinstance(event, Delivered):
            contents.queues.raise_watermark(event.queue, event.offset)
            host.on_watermark(event.queue, event.offset)
        elif isinstance(event, Configure):
            done = contents.configure(event)
            self._refusals.applied(event.config_id, done.refusal)
            for part in done.parts:
                host.on_configured(part, Configured())
            host.on_configured(event, done)
        elif isinstance(event, Purge):
            rids = dict(zip(event.spared, event.rids, strict=True))
            count = contents.queues.purge(event.queue, event.offset, event.spared, rids)
            host.on_purged(event.queue, event.offset, event.spared, count)
        elif isinstance(event, TxDecision):
            self._decide(event)

    def _insert(self, offset: int, event: Publish | TxEnqueue) -> None:
        assert self.host is not None
        for queue in event.queues:
            if self._contents.queues.insert(queue, offset, event.rid, event.message):
                self.host.on_enqueued(queue, offset, event.rid, event.message)

    def _remove(self, event: Settle | TxDequeue) -> None:
        assert self.host is not None
        gone = [entry for entry in event.entries if self._contents.queues.remove(event.queue, *entry)]
        if gone:
            self.host.on_removed(event.queue, gone, Removal(event.reason))

    def _decide(self, event: TxDecision) -> None:
        buffer = self.buffers.pop(event.tx)
        if event.commit:
            for offset, part in buffer.placed():
                if isinstance(part, TxEnqueue):
                    self._insert(offset, part)
                else:
                    self._remove(part)
