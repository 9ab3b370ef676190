"""What the tiny broker knows of the stream: queues wholly in memory, exchanges and bindings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from sortedcontainers import SortedDict

from txha.spi import (
    Above,
    Activated,
    Configuration,
    Configure,
    Configured,
    Done,
    Found,
    Message,
    PreparedBranch,
    RemoteLedger,
    Removal,
)

PAGE, PAGE_BYTES = 1000, 8 << 20
Room = Callable[[], bool]
"""Whether a consumer or a getter could take a message now"""


class TinyQueue:
    """``messages``: offset -> (replication id, message). ``out``: offsets in the hands of clients or of branches."""

    def __init__(self, number: int, watermark: int) -> None:
        self.number = number
        self.messages: SortedDict[int, tuple[int, Message]] = SortedDict()
        self.out: set[int] = set()
        self.back: set[int] = set()
        self.old = self.watermark = self.asked = watermark
        self.loading = False
        self.held = False
        self.wants: dict[Callable[[], bool], Room] = {}
        """Consumers and getters, in turn: each takes one message if it can, and says whether it did"""
        self.announced = self.enqueued = 0
        self.granted = -1
        """What had been announced when credit for one message was granted"""

    @property
    def ready(self) -> int:
        return len(self.messages) - len(self.out)

    def first(self) -> int | None:
        return next((offset for offset in self.messages if offset not in self.out), None)

    def take(self, offset: int) -> tuple[int, Message, bool]:
        rid, message = self.messages[offset]
        self.out.add(offset)
        return rid, message, offset <= self.old or offset in self.back

    def give_back(self, offsets: Iterable[int]) -> None:
        """What was handed out comes back, redelivered."""
        there = [offset for offset in offsets if offset in self.messages]
        self.out.difference_update(there)
        self.back.update(there)

    def remove(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.messages.pop(offset, None)
            self.out.discard(offset)
            self.back.discard(offset)


class TinyBroker:
    """Implements ``AttachedBroker``. ``clients``: to be closed when this node is not the primary any more."""

    def __init__(self) -> None:
        self.ledger: RemoteLedger | None = None
        self.configuration = Configuration()
        self.queues: dict[int, TinyQueue] = {}
        self.clients: dict[Callable[[], None], None] = {}
        self._loaded: list[asyncio.Future[None]] = []

    def named(self, name: str) -> TinyQueue | None:
        number = self.configuration.queue_number(name)
        return None if number is None else self.queues.get(number)

    def route(self, exchange: str, key: str) -> list[TinyQueue] | None:
        """None for an exchange that is not there."""
        if not exchange:
            queue = self.named(key)
            return [queue] if queue else []
        spec = self.configuration.exchanges.get(exchange)
        if spec is None:
            return None
        bound = [b for b in self.configuration.bindings if b.source == exchange]
        found = [self.named(b.destination) for b in bound if spec.kind == "fanout" or b.routing_key == key]
        return list(dict.fromkeys(each for each in found if each is not None))

    async def loaded(self) -> None:
        """Every queue is in memory."""
        while any(queue.loading for queue in self.queues.values()):
            self._loaded.append(asyncio.get_running_loop().create_future())
            await self._loaded[-1]

    def pump(self, queue: TinyQueue) -> None:
        """Hand out what consumers can take, and ask for leave to hand out what comes next."""
        while queue.wants and not queue.loading and not queue.held and self.ledger is not None:
            first = queue.first()
            hungry = any(room() for room in queue.wants.values())
            if first is None:
                if hungry and queue.granted != queue.announced == queue.enqueued:
                    queue.granted = queue.announced
                    self.ledger.grant(queue.number, 1, queue.announced)
                return
            if first > queue.watermark:
                if hungry and first > queue.asked:  # no further: what is asked for counts as handed out (P3)
                    queue.asked = first
                    self.ledger.raise_watermark(queue.number, first)
                return
            for want in list(queue.wants):
                queue.wants[want] = queue.wants.pop(want)  # its turn is over
                if want():
                    break
            else:
                return

    # -- AttachedBroker

    def on_active(self, ledger: RemoteLedger, start: Activated) -> None:
        self.ledger = ledger
        self.configuration = start.configuration
        self.queues = {n: TinyQueue(n, summary.watermark) for n, summary in start.summaries.items()}
        for branch in start.branches:
            self.on_branch_prepared(branch)
        for queue in self.queues.values():
            queue.loading = True
            ledger.read(Above(queue.number, 0, PAGE, PAGE_BYTES), partial(self._page, queue))

    def _page(self, queue: TinyQueue, found: Found) -> None:
        for offset, entry in found.entries:
            queue.messages[offset] = (entry.rid, entry.message)
        if found.through and self.ledger is not None:  # more may stand behind these
            self.ledger.read(Above(queue.number, found.through, PAGE, PAGE_BYTES), partial(self._page, queue))
            return
        queue.loading = False
        waiting, self._loaded = self._loaded, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        self.pump(queue)

    def on_inactive(self, reason: str) -> None:
        self.ledger = None
        self.queues = {}
        clients, self.clients = self.clients, {}
        for close in clients:
            close()
        for each in self._loaded:
            each.cancel()

    def on_configured(self, step: Configure, done: Configured) -> None:
        if done.refusal is None:
            self.configuration.apply(step)
        else:
            self.configuration.last_id = step.config_id
        if done.deleted is not None:
            self.queues.pop(done.deleted, None)
        for spec in self.configuration.queues.values():
            self.queues.setdefault(spec.number, TinyQueue(spec.number, 0))

    def on_arriving(self, queue: int, messages: int) -> None:
        if queue in self.queues:
            self.queues[queue].announced += messages

    def on_enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        there = self.queues[queue]
        there.enqueued += 1
        there.messages[offset] = (rid, message)
        self.pump(there)

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        if queue in self.queues:
            self.queues[queue].remove(offset for offset, _ in entries)

    def on_purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        if queue in self.queues:
            there = self.queues[queue]
            there.remove([each for each in there.messages if each <= offset and each not in set(spared)])

    def on_watermark(self, queue: int, offset: int) -> None:
        if queue in self.queues:
            there = self.queues[queue]
            there.watermark = max(there.watermark, offset)
            self.pump(there)

    def on_branch_prepared(self, branch: PreparedBranch) -> None:
        for queue, entries in branch.locked.items():
            if queue in self.queues:
                self.queues[queue].out.update(offset for offset, _ in entries)

    def on_branch_ended(self, branch: PreparedBranch, committed: bool) -> None:
        for queue, entries in branch.locked.items():
            if queue in self.queues and not committed:
                self.queues[queue].give_back(offset for offset, _ in entries)
                self.pump(self.queues[queue])


def done_in(future: asyncio.Future[str | None]) -> Done:
    """A ``Done`` that a coroutine waits for."""

    def done(error: str | None) -> None:
        if not future.done():
            future.set_result(error)

    return done
