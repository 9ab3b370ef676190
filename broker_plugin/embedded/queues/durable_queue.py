"""A replicated queue as its primary serves it: a window on the store, which alone holds everything.

Promise: messages go out in order of their places, none before the ledger has told of its mark, and memory holds a
bounded number of them, whatever the queue holds.

Algorithm: the *window* is the beginning of what has never been handed out. While it is *complete* it holds all of that,
and new messages join it; when it is full they do not, and it is filled again when it runs short. What was handed out is
known by place and id only; if it is given back, it waits in a heap beside the window and its message is read again
when its turn comes. What a prepared branch of an earlier primary dequeues is out from the beginning, and the window
passes it over. The windows of all queues together are bounded, too (``Windows``). The count of what is ready is the
queue's count less what is out, so it costs nothing to ask. No operation costs in proportion to the queue's depth.

Nothing waits for the store: one page at a time is asked for (``Ledger.read``), which is bounded by bytes or is one
message, and the queue goes on when it has come. What has left the queue by then is not taken from it
(``one_consumer_topples_every_primary``).

Messages that the mark of an earlier generation covers may have been handed out then: they go out as redelivered
(PROTOCOL, "Failover"; P3). What this generation marked and did not hand out does not.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.subscriber import Taken
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.queues.windows import OVERHEAD, Windows
from txobserver.configuration import QueueSpec
from txobserver.events import Message, Removal
from txobserver.ports.ledger import Content, Done, Found, Ledger
from txobserver.ports.store import Above, Asked, At, StoreDamaged

HIGHEST_PLACE = (1 << 63) - 1
FIRST_PAGE = 64
"""Messages read at first; how many are read next follows from their mean size."""


class DurableQueue(Queue):
    """One replicated queue. The calls ``enqueued``, ``removed``, ``purged`` and ``marked`` come from the ledger."""

    durable = True

    def __init__(self, spec: QueueSpec, turn: Turn, ledger: Ledger, content: Content, windows: Windows) -> None:
        super().__init__(spec.name, spec.auto_delete, spec.arguments, turn)
        self.number = spec.number
        self._ledger = ledger
        self._content = content
        self._windows = windows
        self._limits = limits = windows.limits
        summary = content.summary(spec.number)
        self.total = summary.count
        self.mark = self._asked = self._old_mark = summary.mark
        self.removed_count = 0
        self._window: deque[tuple[int, int, Message]] = deque()
        self._window_bytes = 0
        self._cursor = -1
        self._mean = max(1, limits.bytes // FIRST_PAGE)
        self._out: dict[int, int] = {}
        self._returned: list[tuple[int, int]] = []
        self._loaded: dict[int, Message] = {}
        self._loaded_bytes = 0
        self._reading = False
        self._asked_back: dict[int, int] = {}
        self._changes = 0
        self._passed_over: set[int] = set()
        self._settled: dict[Removal, list[tuple[int, int]]] = {}
        self._promises: deque[int] = deque()
        self._promised = 0

    @property
    def ready(self) -> int:
        return self.total - len(self._out)

    @property
    def _complete(self) -> bool:
        """Whether the window holds all that was never handed out."""
        return len(self._window) + len(self._out) + len(self._returned) >= self.total

    @property
    def _full(self) -> bool:
        held = len(self._window)
        return held >= self._limits.messages or self._windows.room(held, self._window_bytes) <= 0

    # -- told by the ledger

    def enqueued(self, place: int, rid: int, message: Message) -> None:
        """A message has entered the queue, behind all others."""
        self._changes += 1
        if self._complete and not self._full:
            self._append(place, rid, message)
        self.total += 1
        if not self._woken and (self.consumers or self._getters):
            self.wake()

    def removed(self, entries: Sequence[tuple[int, int]]) -> None:
        """Messages have left the queue."""
        self._changes += 1
        self.total -= len(entries)
        out = self._out
        for place, rid in entries:
            if out.pop(place, None) is None:
                self._forget(place, rid)

    def purged(self, spared: Sequence[int], count: int) -> None:
        """All but ``spared`` have left the queue."""
        self._changes += 1
        self.total -= count
        self.removed_count = count
        kept = set(spared)
        self._empty_window()
        self._returned = [entry for entry in self._returned if entry[0] in kept]
        heapq.heapify(self._returned)
        for place in [place for place in self._loaded if place not in kept]:
            self._unload(place)
        self._asked_back = {place: rid for place, rid in self._asked_back.items() if place in kept}
        self._out = {place: rid for place, rid in self._out.items() if place in kept}

    def marked(self, place: int) -> None:
        """Messages up to ``place`` may be handed out."""
        if place > self.mark:
            self.mark = place
            self._asked = max(self._asked, place)
        if self._promises:
            self._promised -= self._promises.popleft()
        self.wake()

    def appetite(self, offered: int) -> int:
        """How many of ``offered`` messages could be handed out, beside those that are there or promised already."""
        if self._held:
            return 0
        wanted = min(self.wanted() - self.ready - self._promised, offered)
        if wanted <= 0:
            return 0
        self._promises.append(wanted)
        self._promised += wanted
        return wanted

    # -- asked by channels

    def lock(self, entries: Sequence[tuple[int, int]]) -> None:
        """Before anything is handed out: a prepared branch holds these until ``give_back`` or ``removed``."""
        self._out.update(entries)
        self._passed_over.update(place for place, _ in entries)

    def settle(self, places: Sequence[int], reason: Removal) -> None:
        if self.deleted:
            return
        if not self._settled:
            self._turn.later(self._flush)
        settled = self._settled.setdefault(reason, [])
        for place in places:
            rid = self._out.get(place)
            if rid is not None:
                settled.append((place, rid))

    def entries(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """(place, replication id) of messages that are out and still in the queue."""
        return [(place, self._out[place]) for place in places if place in self._out]

    def places_out(self) -> list[int]:
        """The places of what is in the hands of clients or of branches."""
        return list(self._out)

    def give_back(self, places: Sequence[int]) -> None:
        for place in places:
            rid = self._out.pop(place, None)
            if rid is not None:
                heapq.heappush(self._returned, (place, rid))
        self.wake()

    def purge(self, done: Done) -> None:
        """Ask that everything that is in nobody's hands leaves the queue.

        That is all that stands before the purge in the stream: nothing is handed out until then (``hold``).
        """
        self._ledger.purge(self.number, HIGHEST_PLACE, list(self._out.items()), done)

    def drop(self) -> None:
        super().drop()
        self._empty_window()
        self._returned.clear()
        for place in list(self._loaded):
            self._unload(place)
        self._out.clear()

    # -- inside

    def _flush(self) -> None:
        settled, self._settled = self._settled, {}
        if not self.deleted:
            for reason, entries in settled.items():
                if entries:
                    self._ledger.settle(self.number, entries, reason)

    def _take(self) -> Taken | None:
        if self._returned and self._returned_is_first():
            place, rid = self._returned[0]
            message = self._unload(place)
            if message is None:
                return None
            heapq.heappop(self._returned)
            self._asked_back.pop(place, None)
            self._out[place] = rid
            return place, True, message
        if not self._window or self._window[0][0] > self.mark:
            return None
        place, rid, message = self._window.popleft()
        self._leave_window(message)
        self._out[place] = rid
        return place, place <= self._old_mark, message

    def _returned_is_first(self) -> bool:
        """Whether nothing stands before what was given back; it may do so beyond the window's end, and not be read."""
        first = self._returned[0][0]
        return first < self._window[0][0] if self._window else self._complete or first <= self._cursor

    def _prepare(self) -> None:
        """Read on before the window is empty, and ask for leave to hand out what is wanted next."""
        wanted = self.wanted()
        if not wanted:
            return
        self._read_on()
        if self._window:
            last = self._window[min(wanted, len(self._window)) - 1][0]
            if last > self._asked:
                self._asked = last
                self._promises.append(0)
                self._ledger.mark(self.number, last)

    # -- reading

    def _read_on(self) -> None:
        """Ask for what is handed out next, if it is neither here nor asked for."""
        if self._reading:
            return
        limits, windows = self._limits, self._windows
        room = windows.room(len(self._window), self._window_bytes)
        if self._returned and self._returned_is_first() and not self._is_loaded(self._returned[0][0]):
            self._read_returned()
        elif not self._complete and len(self._window) * 2 < limits.messages and room * 2 > windows.share:
            size = max(1, min(windows.messages(room, self._mean), limits.messages - len(self._window)))
            before = self._changes
            asked = Above(self.number, self._cursor, size, room)
            weight = windows.weight(room, size)
            self._read(asked, weight, lambda found: self._take_page(found, before, weight))

    def _read(self, asked: Asked, weight: int, then: Callable[[Found], None]) -> None:
        """One page. Until it has come it counts for what the windows hold, as large as it may be."""
        self._reading = True
        self._windows.held += weight

        def came(found: Found) -> None:
            self._reading = False
            self._windows.held -= weight
            if not self.deleted:
                then(found)

        self._ledger.read(asked, came)

    def _take_page(self, found: Found, changes: int, weight: int) -> None:
        """What stands behind the window has been read; so much of it was asked for, whatever others hold by now."""
        limits, windows = self._limits, self._windows
        most = windows.held + weight
        before, passed = self._window_bytes, 0
        held = len(self._window)
        for place, entry in found.entries:
            passed += 1
            if place <= self._cursor:
                continue  # the window was emptied meanwhile, and new messages have joined it
            if place in self._passed_over:
                self._cursor = place
            elif windows.held >= most or self._window_bytes >= limits.bytes or len(self._window) >= limits.messages:
                break
            else:
                self._append(place, entry.rid, entry.message)
        else:
            self._cursor = max(self._cursor, found.through)
        if len(self._window) > held:
            self._mean = (self._window_bytes - before) // (len(self._window) - held) + 1
        elif not passed and not found.through and changes == self._changes:
            raise StoreDamaged("the queue state does not hold a message that it counts")
        self.wake()

    def _read_returned(self) -> None:
        """Ask for the first of what was given back."""
        limits, returned = self._limits, self._returned
        room = max(0, self._windows.room(len(self._loaded), self._loaded_bytes))
        size = max(1, min(self._windows.messages(room, self._mean), limits.messages - len(self._loaded)))
        first = [heapq.heappop(returned) for _ in range(min(size, len(returned)))]
        for each in first:
            heapq.heappush(returned, each)
        self._asked_back = {place: rid for place, rid in first if place not in self._loaded}
        weight = self._windows.weight(room, size)
        self._read(At(self.number, tuple(self._asked_back), room), weight, self._take_returned)

    def _take_returned(self, found: Found) -> None:
        """It has been read."""
        asked, self._asked_back = self._asked_back, {}
        for place, entry in found.entries:
            if asked.pop(place, None) == entry.rid:
                self._loaded[place] = entry.message
                self._loaded_bytes += entry.message.size
                self._windows.held += entry.message.size + OVERHEAD
        first = min(asked, default=0)
        if first and self._returned[0][0] == first and not self._is_loaded(first):
            raise StoreDamaged("the queue state does not hold a message that was given back")
        self.wake()

    def _is_loaded(self, place: int) -> bool:
        return place in self._loaded or self._content.recent(self.number, place) is not None

    def _unload(self, place: int) -> Message | None:
        """The message of what was given back, if it has been read or is in memory."""
        message = self._loaded.pop(place, None)
        if message is not None:
            self._loaded_bytes -= message.size
            self._windows.held -= message.size + OVERHEAD
            return message
        entry = self._content.recent(self.number, place)
        return None if entry is None else entry.message

    def _append(self, place: int, rid: int, message: Message) -> None:
        """To the window."""
        self._window.append((place, rid, message))
        self._window_bytes += message.size
        self._windows.held += message.size + OVERHEAD
        self._cursor = place

    def _leave_window(self, message: Message) -> None:
        self._window_bytes -= message.size
        self._windows.held -= message.size + OVERHEAD

    def _empty_window(self) -> None:
        for _, _, message in self._window:
            self._leave_window(message)
        self._window.clear()

    def _forget(self, place: int, rid: int) -> None:
        """A message left the queue though nobody held it."""
        self._asked_back.pop(place, None)
        if (place, rid) in self._returned:
            self._returned.remove((place, rid))
            heapq.heapify(self._returned)
            self._unload(place)
        for index, entry in enumerate(self._window):
            if entry[0] >= place:
                if entry[0] == place:
                    del self._window[index]
                    self._leave_window(entry[2])
                return
