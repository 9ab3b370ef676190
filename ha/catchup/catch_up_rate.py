"""CatchUpRate: how fast a joiner gets on, measured from when its guard was set."""

from __future__ import annotations

SHORTEST = 0.001
"""Seconds: so long at least a joiner has taken for what it has got"""


class CatchUpRate:
    """``slowest``: seconds that have passed at most without progress. Times are seconds."""

    def __init__(self, now: float) -> None:
        self.slowest = 0.0
        self._from = now
        self._bytes = 0

    def waited(self, seconds: float) -> None:
        """It has got on, after so long without progress."""
        self.slowest = max(self.slowest, seconds)

    def got(self, size: int) -> None:
        """It has made so many bytes of the stream durable."""
        self._bytes += size

    def gets_in(self, seconds: float, now: float) -> float:
        """How many bytes it gets in so many seconds, if it goes on so."""
        return self._bytes / max(now - self._from, SHORTEST) * seconds
