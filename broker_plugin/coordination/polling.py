"""Watching a store that cannot say by itself that its record has changed: by looking, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

from ha.membership.record import UNSEEN, Record, Snapshot, Waiter

POLL_SECONDS = 0.2
"""Between looks, at most."""


class Polling:
    """``watch`` for an adapter that has but ``read``."""

    def __init__(self, read: Callable[[], Record | None]) -> None:
        self._read = read
        self._seen = UNSEEN
        self._looked_at = 0.0

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As ``Coordination.watch``.

        A store that was looked at a moment ago, and had the version ``after``, is not looked at again at once: so one
        watch after the other costs one reading each: the look that comes shortly before the time is up is the last.
        """
        until = time.monotonic() + seconds
        every = min(POLL_SECONDS, seconds)
        while True:
            due = min(self._looked_at + every, until) if self._seen == after else 0.0
            if waiter.wait(max(0.0, due - time.monotonic())):
                return None
            began = time.monotonic()
            self._seen = UNSEEN  # until it has been read
            record = self._read()
            self._seen, self._looked_at = record.version if record is not None else 0, began
            if self._seen != after or until - began < every / 2 or began >= until:
                return Snapshot(self._seen, record)
