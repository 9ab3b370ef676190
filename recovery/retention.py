"""Retention: from when on segments of the log are old enough to be removed.

A segment's age is told by wall clocks: when it was written, and now. A clock that jumps ahead by days makes all of them
old in one moment, and what readers of the log have not fetched yet would be gone. So the wall clock is held to one that
only counts seconds: where it has run ahead of that, nothing is removed for as long as segments are kept, and then all
goes on as before. The log grows by one more retention at most. The same holds when a node starts and its log was
last written longer ago than that: whether it was down or the clock was wrong, readers get their time.
"""

from __future__ import annotations

from collections.abc import Callable

SLACK = 60.0
"""Seconds by which the wall clock may run ahead between two looks before it counts as a jump."""

NEVER = 0.0


class Retention:
    """``seconds``: how long segments are kept. ``wall``: seconds since 1970. ``counted``: seconds, without jumps.

    ``last_written``: when the log was, by the wall clock; None for an empty one.
    """

    def __init__(
        self,
        seconds: float,
        wall: Callable[[], float],
        counted: Callable[[], float],
        last_written: float | None = None,
    ) -> None:
        self._seconds = seconds
        self._wall = wall
        self._counted = counted
        self._seen = wall(), counted()
        self._held_until: float | None = None
        if last_written is not None and wall() - last_written > max(seconds, SLACK):
            self._held_until = counted() + seconds

    def removable_before(self) -> float:
        """Segments last written before this time, in seconds since 1970, may be removed now."""
        (wall_before, before), (wall, now) = self._seen, (self._wall(), self._counted())
        self._seen = wall, now
        jumped = wall - wall_before > now - before + SLACK
        if self._held_until is not None:  # which ends in any case: a clock that jumps all the time fills no disk
            if now < self._held_until:
                return NEVER
            self._held_until = None
        elif jumped and self._seconds > 0:
            self._held_until = now + self._seconds
            return NEVER
        return wall - self._seconds
