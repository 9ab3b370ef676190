"""Marks: where frames of a log stand."""

from __future__ import annotations

from typing import NamedTuple

from txobserver.frames import Frame

END = (1 << 63) - 1
"""A sequence behind all others"""


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


def mark_of(segment: int, offset: int, frame: Frame) -> Mark:
    """Of a frame that stands there."""
    return Mark(segment, offset, len(frame.data), frame.generation, frame.first, frame.count, frame.time_ms)
