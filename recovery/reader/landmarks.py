"""Landmarks: marks of a log that are remembered, so that a search begins near by."""

from __future__ import annotations

from operator import attrgetter

from sortedcontainers import SortedKeyList

from recovery.reader.marks import Mark
from recovery.reader.node_log import NodeLog

APART = 16 << 10
"""Bytes between two landmarks, at least"""
LANDMARKS = 10_000


_FIRST = attrgetter("first")


class Landmarks:
    """Where some frames of a log were found, so that a search begins near by: without, it begins at the segment's."""

    def __init__(self) -> None:
        self._known = SortedKeyList(key=_FIRST)

    def find(self, log: NodeLog, sequence: int) -> Mark | None:
        """As ``log.find``."""
        near = self._before(sequence)
        if near is not None and not log.segments.holds(near):
            self._known.clear()  # the log has been made anew, or that segment has been reclaimed
            near = None
        found = log.find(sequence, near)
        if found is not None and (near is None or found.segment != near.segment or found.offset - near.offset > APART):
            self._known.add(found)
            del self._known[:-LANDMARKS]
        return found

    def _before(self, sequence: int) -> Mark | None:
        at = self._known.bisect_key_right(sequence)
        found: Mark | None = self._known[at - 1] if at else None
        return found
