"""The newest frames of the log, kept in memory so that backups in step are served without reading the disk."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from txobserver.frames import Frame


class RecentFrames:
    """A bounded run of frames without gaps, the oldest dropped first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._frames: deque[Frame] = deque()
        self._bytes = 0

    def add(self, frame: Frame) -> None:
        """The next frame of the log."""
        self._frames.append(frame)
        self._bytes += len(frame.data)
        while self._bytes > self._limit and len(self._frames) > 1:
            self._bytes -= len(self._frames.popleft().data)

    def starting_at(self, sequence: int) -> Frame | None:
        """The frame whose first event has this sequence, or None if it is not kept (any more)."""
        frames = self._frames
        if not frames or sequence < frames[0].first or sequence > frames[-1].first:
            return None
        if frames[-1].first == sequence:
            return frames[-1]
        index = bisect_left(frames, sequence, key=lambda frame: frame.first)
        return frames[index] if frames[index].first == sequence else None
