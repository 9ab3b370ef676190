"""What has been handed out and given back: it stands at its old offset again, and is read again when its turn comes.

Offsets and ids of all of it are here, in a heap; of its messages only those that are in memory anyway, and a bounded
number that was read because it goes out next.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import NamedTuple

from broker_plugin.embedded.queues.windows import OVERHEAD, Windows
from txobserver.events import Message
from txobserver.message_size import size_of
from txobserver.ports.ledger import Content, Found
from txobserver.ports.store import Asked, At, StoreDamaged


class Wanted(NamedTuple):
    """A page that is asked of the store. ``weight``: bytes that it counts for among the windows until it has come."""

    asked: Asked
    weight: int


class GivenBack:
    """Of one queue. ``entries`` is a heap of (offset, replication id); ``loaded``: what has been read, by offset.

    ``loaded_bytes`` is the size of that; ``asked`` is what is being read: replication ids by offset.
    """

    def __init__(self, number: int, content: Content, windows: Windows) -> None:
        self.entries: list[tuple[int, int]] = []
        self.loaded: dict[int, Message] = {}
        self.loaded_bytes = 0
        self.asked: dict[int, int] = {}
        self._number = number
        self._content = content
        self._windows = windows

    def add(self, offset: int, rid: int) -> None:
        """A message comes back."""
        heapq.heappush(self.entries, (offset, rid))

    def take(self) -> tuple[int, int, Message] | None:
        """The first, which is there: offset, replication id, message. None if it has to be read before."""
        offset, rid = self.entries[0]
        message = self._unload(offset)
        if message is None:
            return None
        heapq.heappop(self.entries)
        self.asked.pop(offset, None)
        return offset, rid, message

    def forget(self, offset: int, rid: int) -> None:
        """A message has left the queue; it may have been given back, and may be on its way here."""
        self.asked.pop(offset, None)
        if (offset, rid) in self.entries:
            self.entries.remove((offset, rid))
            heapq.heapify(self.entries)
            self._unload(offset)

    def purged(self, kept: Collection[int]) -> None:
        """All but what stands at these offsets has left the queue."""
        self.entries = [entry for entry in self.entries if entry[0] in kept]
        heapq.heapify(self.entries)
        for offset in [offset for offset in self.loaded if offset not in kept]:
            self._unload(offset)
        self.asked = {offset: rid for offset, rid in self.asked.items() if offset in kept}

    def clear(self) -> list[tuple[int, int]]:
        """The queue is gone; returns the entries, to be let go of."""
        entries, self.entries = self.entries, []
        for offset in list(self.loaded):
            self._unload(offset)
        return entries

    def is_loaded(self, offset: int) -> bool:
        """Whether the message at this offset is in memory."""
        return offset in self.loaded or self._content.recent(self._number, offset) is not None

    def ask(self, mean: int) -> Wanted:
        """The first of it, to be read: as many as there is room for if they have this mean size, and one at least."""
        limits, entries = self._windows.limits, self.entries
        room = max(0, self._windows.room(len(self.loaded), self.loaded_bytes))
        size = max(1, min(self._windows.messages(room, mean), limits.messages - len(self.loaded)))
        first = [heapq.heappop(entries) for _ in range(min(size, len(entries)))]
        for each in first:
            heapq.heappush(entries, each)
        self.asked = {offset: rid for offset, rid in first if offset not in self.loaded}
        return Wanted(At(self._number, tuple(self.asked), room), self._windows.weight(room, size))

    def came(self, found: Found) -> None:
        """It has been read. Raises StoreDamaged if the first is not among it."""
        asked, self.asked = self.asked, {}
        for offset, entry in found.entries:
            if asked.pop(offset, None) == entry.rid:
                self.loaded[offset] = entry.message
                self.loaded_bytes += size_of(entry.message)
                self._windows.held += size_of(entry.message) + OVERHEAD
        first = min(asked, default=0)
        if first and self.entries[0][0] == first and not self.is_loaded(first):
            raise StoreDamaged("the queue state does not hold a message that was given back")

    def _unload(self, offset: int) -> Message | None:
        """The message at this offset, if it has been read or is in memory; it is held here no more."""
        message = self.loaded.pop(offset, None)
        if message is not None:
            self.loaded_bytes -= size_of(message)
            self._windows.held -= size_of(message) + OVERHEAD
            return message
        entry = self._content.recent(self._number, offset)
        return None if entry is None else entry.message
