"""Watching a store that tells of changes by itself: a look when it has told of one, and when the time is up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ha.membership.record import UNSEEN, Record, Snapshot, Waiter

UNREADABLE = -2
"""The version that is told of where something is stored that is no record: it is to be looked at"""


class ToldChanges:
    """``watch`` for an adapter that has ``read``, and whose store tells which version it has now.

    What is told only says when to look, so it may come late, twice or never: a watch ends when its time is up, with a
    reading, as if nothing had been told.
    """

    def __init__(self, read: Callable[[], Record | None]) -> None:
        self._read = read
        self._seen = UNSEEN
        self._lock = threading.Lock()
        self._told = UNSEEN
        self._after = UNSEEN
        self._waiter: Waiter | None = None

    def changed(self, version: int) -> None:
        """The store has this version now (0: no record). From any thread."""
        with self._lock:
            self._told = version
            if self._waiter is not None and self._is_news():
                self._waiter.set()

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As ``Coordination.watch``."""
        until = time.monotonic() + seconds
        while True:
            left = max(0.0, until - time.monotonic())
            known = self._seen == after != UNSEEN
            if waiter.is_set() or (known and not self._waited(after, left, waiter)):
                return None
            began = time.monotonic()
            self._seen = UNSEEN  # until it has been read
            record = self._read()
            self._seen = record.version if record is not None else 0
            if self._seen != after or began >= until or waiter.is_set():
                return Snapshot(self._seen, record)

    def _waited(self, after: int, seconds: float, waiter: Waiter) -> bool:
        """Whether there is a reason to look: something was told, or the time is up."""
        with self._lock:
            self._after = after
            if self._is_news():
                self._told = UNSEEN
                return True
            self._waiter = waiter
        ended = waiter.wait(seconds)
        with self._lock:
            self._waiter = None
            told = self._is_news()
            if told:
                self._told = UNSEEN
        return told or not ended

    def _is_news(self) -> bool:
        """What was told of a lower version is late: it was read meanwhile. None at all is one that is gone."""
        if self._told in (UNSEEN, self._after):
            return False
        return self._told > self._after or self._told in (0, UNREADABLE)
