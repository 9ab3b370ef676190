"""The newest frames of the log, kept in memory so that those who are in step are served without reading the disk."""

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
        """The next frame of the log. One that leaves a gap begins the run anew."""
        if self._frames and self._frames[-1].last + 1 != frame.first:
            self.cut(0)
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

    def read(self, first: int, last: int, max_bytes: int) -> list[Frame]:
        """The frames with events from ``first`` to ``last``: so many bytes of them, or one frame.

        None if ``first`` is not kept (any more), or is not there yet.
        """
        frames, found, size = self._frames, list[Frame](), 0
        if not frames or not frames[0].first <= first <= frames[-1].last:
            return found
        index = bisect_left(frames, first, key=lambda frame: frame.last)
        while index < len(frames) and frames[index].first <= last and size < max_bytes:
            found.append(frames[index])
            size += len(frames[index].data)
            index += 1
        return found

    def bytes_behind(self, sequence: int, most: int) -> int:
        """How many bytes the frames behind this sequence have; more than ``most`` if they do, or are not all kept."""
        size, first = 0, sequence + 1
        for frame in reversed(self._frames):
            if frame.last <= sequence or size > most:
                return size
            size, first = size + len(frame.data), frame.first
        return size if first <= sequence + 1 else most + 1

    def cut(self, last: int) -> None:
        """Forget the events behind sequence ``last``."""
        frames = self._frames
        while frames and frames[-1].last > last:
            frame = frames.pop()
            self._bytes -= len(frame.data)
            if frame.first <= last:
                frames.append(frame.part(frame.first, last))
                self._bytes += len(frames[-1].data)
