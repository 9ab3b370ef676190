"""A replicated queue as its primary serves it: a window on the store, which alone holds everything.

Promise: messages go out in order of their offsets, none before the ledger has told of its delivery watermark, and
memory holds a bounded number of them, whatever the queue holds.

Algorithm: what goes out next is the queue's ``Supply``: the *window*, which is the beginning of what has never been
handed out, and beside it what was handed out and given back. What is handed out is known by offset and id only. What a
prepared branch of an earlier primary dequeues is out from the beginning, and the window passes it over. The windows of
all queues together are bounded, too (``Windows``). The count of what is ready is the queue's count less what is out, so
it costs nothing to ask. No operation costs in proportion to the queue's depth.

Nothing waits for the store: one page at a time is asked for (``Ledger.read``), which is bounded by bytes or is one
message, and the queue goes on when it has come. What has left the queue by then is not taken from it
(``one_consumer_topples_every_primary``).

Messages that the watermark of an earlier generation covers may have been handed out then: they go out as redelivered
(PROTOCOL, "Failover"; P3). What this generation's watermark covers and it did not hand out does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from broker_plugin.embedded.queues.draining import SPARED_MOST, Draining
from broker_plugin.embedded.queues.given_back import Wanted
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.subscriber import Taken
from broker_plugin.embedded.queues.supply import Supply
from broker_plugin.embedded.queues.turn import Turn, steps_now
from broker_plugin.embedded.queues.windows import Windows
from txobserver.configuration import QueueSpec
from txobserver.events import Message, Removal
from txobserver.ports.ledger import Content, Done, Found, Ledger

HIGHEST_OFFSET = (1 << 63) - 1


class DurableQueue(Queue):
    """One replicated queue. ``enqueued``, ``removed``, ``purged`` and ``watermark_raised`` are called by the ledger.

    Many methods: what the ledger tells, what channels ask, and the two ways in which messages go out.
    """

    durable = True

    def __init__(self, spec: QueueSpec, turn: Turn, ledger: Ledger, content: Content, windows: Windows) -> None:
        super().__init__(spec.name, spec.auto_delete, spec.arguments, turn)
        self.number = spec.number
        self._ledger = ledger
        self._supply = Supply(spec.number, content, windows)
        summary = content.summary(spec.number)
        self.total = summary.count
        self.watermark = self._asked = self._old_watermark = summary.watermark
        self.removed_count = 0
        self._out: dict[int, int] = {}
        self._changes = 0
        self._settled: dict[Removal, list[tuple[int, int]]] = {}
        self._announced = self._coming = 0
        self._draining: Draining | None = None

    @property
    def out(self) -> int:
        return len(self._out)

    @property
    def ready(self) -> int:
        return self.total - len(self._out) - self._unseen

    # -- told by the ledger

    def enqueued(self, offset: int, rid: int, message: Message) -> None:
        """A message has entered the queue, behind all others."""
        self._changes += 1
        self._supply.enter(offset, rid, message, self.total - len(self._out))
        self.total += 1
        if self._coming:
            self._coming -= 1
        if not self._woken and (self.consumers or self._getters):
            self.wake()

    def removed(self, entries: Sequence[tuple[int, int]]) -> None:
        """Messages have left the queue."""
        self._changes += 1
        self.total -= len(entries)
        out = self._out
        for offset, rid in entries:
            if out.pop(offset, None) is None:
                self._supply.forget(offset, rid)
        if self._draining is not None:
            self._draining.gone(entries)
            self._end_draining(self._draining)

    def purged(self, spared: Sequence[int], count: int) -> None:
        """All but ``spared`` have left the queue."""
        self._changes += 1
        self.total -= count
        self.removed_count = count
        kept = set(spared)
        self._supply.purged(kept)
        self._out = {offset: rid for offset, rid in self._out.items() if offset in kept}

    def watermark_raised(self, offset: int) -> None:
        """Messages up to ``offset`` may be handed out."""
        if offset > self.watermark:
            self.watermark = offset
            self._asked = max(self._asked, offset)
        self.wake()

    def arriving(self, messages: int) -> None:
        """Grant credit for as many as could be handed out, beside those that are there or on their way already.

        A watermark covers all before it: what came when no consumer could take it, and is on its way still, counts as
        what is there (``consumer_comes_while_messages_are_on_their_way``).
        """
        announced, coming = self._announced, self._coming
        self._announced += messages
        self._coming += messages
        if self._held:
            return
        before = self.ready + coming
        wanted = self.wanted(before + messages) - before
        if wanted > 0:
            self._ledger.grant(self.number, wanted, announced)

    # -- asked by channels

    def lock(self, entries: Sequence[tuple[int, int]]) -> None:
        """Before anything is handed out: a prepared branch holds these until ``give_back`` or ``removed``."""
        self._out.update(entries)
        self._supply.pass_over([offset for offset, _ in entries])

    def settle(self, offsets: Sequence[int], reason: Removal) -> None:
        if self.deleted:
            return
        if not self._settled:
            self._turn.later(self._flush)
        settled = self._settled.setdefault(reason, [])
        for offset in offsets:
            rid = self._out.get(offset)
            if rid is not None:
                settled.append((offset, rid))

    def entries(self, offsets: Sequence[int]) -> list[tuple[int, int]]:
        """(offset, replication id) of messages that are out and still in the queue."""
        return [(offset, self._out[offset]) for offset in offsets if offset in self._out]

    def offsets_out(self) -> list[int]:
        """The offsets of what is in the hands of clients or of branches."""
        return list(self._out)

    def _return(self, offsets: Sequence[int]) -> int:
        count = 0
        for offset in offsets:
            rid = self._out.pop(offset, None)
            if rid is not None:
                count += 1
                self._supply.given_back.add(offset, rid)
        return count

    def purge(self, done: Done) -> None:
        """Ask that everything that neither a client nor a branch holds leaves the queue.

        That is all that stands before the purge in the stream: nothing is handed out until then (``hold``). Where
        clients hold many messages, it is what stands ready now, piece by piece (``purge_of_what_clients_hold``).
        """
        if len(self._out) > SPARED_MOST:
            self._draining = Draining(self.ready, done)
            self.wake()
        else:
            self._turn.spent += len(self._out)
            self._ledger.purge(self.number, HIGHEST_OFFSET, list(self._out.items()), done)

    def work(self) -> None:
        if self._draining is None or self.deleted:
            super().work()
        else:
            self._woken = False
            self._drain(self._draining)
            self._prepare()

    def wanted(self, most: int) -> int:
        return super().wanted(most) if self._draining is None else min(self._draining.left, most)

    def drop(self) -> None:
        super().drop()
        if self._draining is not None:
            self._draining.done(None)
            self._draining = None
        self._turn.let_go(self._supply.clear())
        self._turn.let_go(self._out)
        self._out = {}

    # -- inside

    def _flush(self) -> None:
        settled, self._settled = self._settled, {}
        if not self.deleted:
            for reason, entries in settled.items():
                if entries:
                    self._ledger.settle(self.number, entries, reason)

    def _drain(self, draining: Draining) -> None:
        """Take out what this turn has room for, of what is here and may be taken."""
        turn, entries = self._turn, []
        until = turn.spent + steps_now(turn)
        while draining.left and turn.spent < until:
            turn.spent += 1
            taken = self._take()
            if taken is None:
                break
            draining.taken(taken[0])
            entries.append((taken[0], self._out[taken[0]]))
        if turn.spent >= until:
            self.wake()
        if entries:
            self._ledger.settle(self.number, entries, Removal.DROPPED)
        self._end_draining(draining)

    def _end_draining(self, draining: Draining) -> None:
        if draining.over:
            self._draining = None
            self.removed_count = draining.count
            draining.done(None)

    def _take(self) -> Taken | None:
        supply = self._supply
        back = supply.given_back
        if back.entries and supply.given_back_is_first(self.total - len(self._out)):
            first = back.take()
            if first is None:
                return None
            offset, rid, message = first
            self._out[offset] = rid
            return offset, True, message
        window = supply.window
        if not window or window[0][0] > self.watermark:
            return None
        offset, rid, message = window.popleft()  # by a method of the supply, each message would cost a tuple more
        supply.left_window(message)
        self._out[offset] = rid
        return offset, offset <= self._old_watermark, message

    def _prepare(self) -> None:
        """Read on before the window is empty, and ask for leave to hand out what is wanted next."""
        wanted = self.wanted(max(1, len(self._supply.window)))
        if not wanted:
            return
        page = self._supply.next_page(self.total - len(self._out))
        if page is not None:
            self._ledger.read(page.asked, partial(self._came, page, self._changes))
        window = self._supply.window
        if window:
            last = window[wanted - 1][0]
            if last > self._asked:
                self._asked = last
                self._ledger.raise_watermark(self.number, last)

    def _came(self, page: Wanted, changes: int, found: Found) -> None:
        """A page has been read; ``changes`` is what the count of changes was when it was asked for."""
        self._supply.came(page)
        if not self.deleted:
            self._supply.take_page(page, found, changes == self._changes)
            self.wake()
