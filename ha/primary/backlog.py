"""Backlog: how much of the stream waits to pass the commit point, and whether that is too much.

A client that publishes faster than the slowest node that counts can take would otherwise fill the primary's memory:
every event waits there until it is applied. While there is too much of it, clients are not read.
"""

from __future__ import annotations

from collections import deque

from ha.messages.sizes import ENTRY

EVENT_OVERHEAD = 200
"""Bytes that an event is counted for in memory, beside what it takes on the wire."""


class Backlog:
    """Sizes are in bytes. ``full``: more than ``limit`` waits; that lasts until no more than half of it does."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._gathered = 0
        self._framed = 0
        self._frames: deque[tuple[int, int]] = deque()
        self._full = False

    @property
    def full(self) -> bool:
        """Whether clients should not be read for now."""
        waiting = self._gathered + self._framed
        self._full = waiting > (self._limit // 2 if self._full else self._limit)
        return self._full

    def gathered(self, size: int) -> None:
        """An event of so many bytes has joined the group that is being gathered (``ha.messages.sizes.event_bytes``)."""
        self._gathered += size + EVENT_OVERHEAD

    def settled(self, messages: int) -> None:
        """So many messages more are settled by an event that has joined it before."""
        self._gathered += ENTRY * messages

    @property
    def gathered_bytes(self) -> int:
        """About how many bytes are being gathered."""
        return self._gathered

    def framed(self, last: int, size: int, left: int = 0) -> None:
        """The group, but for about ``left`` bytes, has become a frame of ``size`` bytes that ends with ``last``."""
        size, self._gathered = max(size, self._gathered - left), left
        self._framed += size
        self._frames.append((last, size))

    def passed(self, commit: int) -> None:
        """Everything up to sequence ``commit`` has passed the commit point."""
        while self._frames and self._frames[0][0] <= commit:
            self._framed -= self._frames.popleft()[1]
