"""StreamTimes: when the stream of this generation had got how far, so that it is known how old the oldest event is that
a member still owes.

To get on by an event now and then is progress. What waits behind it may wait longer and longer all the same, so the age
of the oldest is looked at as well (``one_frame_for_each_attachment``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque


class StreamTimes:
    """As exact as the times between two notes. Sequences are those of the stream, times seconds."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, float]] = deque()

    def note(self, tail: int, now: float) -> None:
        """The stream ends at ``tail`` now."""
        if not self._notes or tail > self._notes[-1][0]:
            self._notes.append((tail, now))

    def since(self, acknowledged: int, now: float) -> float:
        """Since when it has been longer than that."""
        at = bisect_right(self._notes, acknowledged, key=lambda note: note[0])
        return self._notes[at][1] if at < len(self._notes) else now

    def forget(self, acknowledged: int) -> None:
        """No member owes anything up to there."""
        while self._notes and self._notes[0][0] <= acknowledged:
            self._notes.popleft()

    def pass_over(self, seconds: float, now: float) -> None:
        """So much of the time until now is not held against any member (``ha.watch``)."""
        self._notes = deque((tail, min(at + seconds, now)) for tail, at in self._notes)
