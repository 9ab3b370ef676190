"""Marks: where frames of a log stand. Landmarks: those that are remembered, so that a search begins near by."""

from __future__ import annotations

from bisect import bisect_right, insort
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from txobserver.frames import Frame

if TYPE_CHECKING:
    from recovery.reader.node_log import NodeLog

APART = 16 << 10
"""Bytes between two landmarks, at least"""
LANDMARKS = 10_000


class Mark(NamedTuple):
    """Where a frame stands, and what its header says."""

    segment: int
    """First sequence of its segment"""
    offset: int
    size: int
    generation: int
    first: int
    events: int
    time_ms: int

    @property
    def last(self) -> int:
        """Sequence of its last event."""
        return self.first + self.events - 1


_FIRST = attrgetter("first")


def mark_of(segment: int, offset: int, frame: Frame) -> Mark:
    """Of a frame that stands there."""
    return Mark(segment, offset, len(frame.data), frame.generation, frame.first, frame.count, frame.time_ms)


class Landmarks:
    """Where some frames of a log were found, so that a search begins near by: without, it begins at the segment's."""

    def __init__(self) -> None:
        self._known: list[Mark] = []

    def find(self, log: NodeLog, sequence: int) -> Mark | None:
        """As ``log.find``."""
        near = self._before(sequence)
        if near is not None and not log.holds(near):
            self._known.clear()  # the log has been made anew, or that segment has been reclaimed
            near = None
        found = log.find(sequence, near)
        if found is not None and (near is None or found.segment != near.segment or found.offset - near.offset > APART):
            insort(self._known, found, key=_FIRST)
            del self._known[:-LANDMARKS]
        return found

    def _before(self, sequence: int) -> Mark | None:
        at = bisect_right(self._known, sequence, key=_FIRST)
        return self._known[at - 1] if at else None
