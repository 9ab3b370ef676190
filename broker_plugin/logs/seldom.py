"""Lines that clients, peers and readers can cause as often as they like: one in a while, which counts the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 10.0
"""Between two lines of one kind"""


class Seldom:
    """Whether a line that there may be many of is told: one of each kind in QUIET_SECONDS. ``now``: in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._quiet: dict[str, float] = {}
        """Until when, by kind, of which there are few"""
        self._unsaid: dict[str, int] = {}

    def due(self, kind: str = "") -> int | None:
        """How many have not been told since the last one; None if this one is not told either."""
        now = self._now()
        if now < self._quiet.get(kind, now):
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return None
        self._quiet[kind] = now + QUIET_SECONDS
        return self._unsaid.pop(kind, 0)
