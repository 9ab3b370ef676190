"""One reading of a node's log, from first to last or the other way, while its node writes, cuts and reclaims.

What is not there, or not whole, is looked at again: the node may have changed the log in the middle of the reading.
Only then it is damaged, or was cut behind what has been given already, which its reader is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from recovery.reader.marked_segments import MarkedSegments
from recovery.reader.marks import END, Mark, mark_of
from recovery.store.log import LogReclaimed
from recovery.store.segment import scan, segment_path
from recovery.store.segments import gap
from txobserver.frames import Frame, TornFrame
from txobserver.ports.store import StoreDamaged, StoreError

READINGS = 3
"""How often a place is read before it counts as damaged, or gone: the node may have cut its log meanwhile"""


class LogCut(StoreError):
    """Raised when a log was cut, or begun anew, behind what its reader has been given already: to be read again."""


class LogReading:
    """One, in one direction, of these segments; it remembers the frame that it has given last."""

    def __init__(self, segments: MarkedSegments) -> None:
        self._segments = segments
        self._directory = segments.directory
        self._given: Mark | None = None

    def forwards(self, first: int, last: int, start: Mark | None) -> Iterator[Frame]:
        """As ``NodeLog.frames``, of whichever node the log is."""
        self._check_not_cut(start)
        failures = 0
        while True:
            firsts = self._segments.firsts()
            if firsts[0] > first if firsts else failures:
                raise self._segments.reclaimed(first)
            try:
                for mark, frame in self._walk(firsts, first, last, start):
                    self._check_follows(frame)
                    self._given = start = mark
                    first, failures = frame.last + 1, 0
                    yield frame
                return
            except (StoreDamaged, FileNotFoundError) as error:
                failures += 1
                self._check_not_cut(self._given)
                if failures == READINGS:
                    raise error if isinstance(error, StoreDamaged) else self._segments.reclaimed(first) from None

    def _walk(self, firsts: list[int], first: int, last: int, start: Mark | None) -> Iterator[tuple[Mark, Frame]]:
        """Of the segments that were there. Raises StoreDamaged and FileNotFoundError, also for a cut."""
        expected: int | None = None
        for segment in firsts[max(bisect_right(firsts, first) - 1, 0) :]:
            if segment > last:
                return
            offset = start.offset if start is not None and start.segment == segment else 0
            if expected is None and not offset:
                expected = segment
            try:
                for at, frame in scan(segment_path(self._directory, segment), offset, segment != firsts[-1]):
                    if frame.first > first if expected is None else frame.first != expected:
                        raise StoreDamaged(gap(self._directory, expected or first, frame.first))
                    expected = frame.last + 1
                    if frame.first > last:
                        return
                    if frame.last >= first:
                        yield mark_of(segment, at, frame), frame
                    if frame.last >= last:
                        return
            except TornFrame as error:
                if segment == firsts[-1]:
                    return
                raise StoreDamaged(f"{error}; restore it or let the node rejoin with a new store") from None

    def backwards(self, before: int) -> Iterator[Frame]:
        """As ``NodeLog.backwards``."""
        failures = 0
        while True:
            try:
                for mark, frame in self._walk_back(before):
                    self._check_follows(frame)
                    self._given, before, failures = mark, frame.first, 0
                    yield frame
                return
            except (StoreDamaged, LogReclaimed, FileNotFoundError) as error:
                if not isinstance(error, StoreDamaged) and next(iter(self._segments.firsts()), before) >= before:
                    return
                failures += 1
                self._check_not_cut(self._given)
                if failures == READINGS:
                    raise

    def _walk_back(self, before: int) -> Iterator[tuple[Mark, Frame]]:
        """As ``backwards``, of the segments that are there now."""
        firsts = self._segments.firsts()
        ends = [*(first - 1 for first in firsts[1:]), END]
        for segment, end in reversed(list(zip(firsts, ends, strict=True))):
            if segment >= before:
                continue
            marks = [mark for mark in self._segments.marks(segment) if mark.first < before]
            if (marks[-1].last if marks else segment - 1) < min(before - 1, end):
                self._read_out(segment, marks[-1].offset if marks else 0, end)
            for mark in reversed(marks):
                found = next(scan(segment_path(self._directory, segment), mark.offset), None)
                if found is None or mark_of(segment, *found) != mark:
                    raise StoreDamaged(f"{self._directory} has changed at event {mark.first}; read it again")
                yield mark, found[1]

    def _read_out(self, segment: int, offset: int, end: int) -> None:
        """Raise what is wrong behind the last frame of a segment that was found, unless the log may end there."""
        last = segment - 1
        with suppress(TornFrame):
            for _, frame in scan(segment_path(self._directory, segment), offset, end != END):
                last = frame.last
        if end != END:
            raise self._segments.lacks(min(last + 1, end), end)

    def _check_follows(self, frame: Frame) -> None:
        """Raise LogCut if ``frame`` may be of another history than what was given just before it.

        Within a generation there is one. Between two, what was given stands there still, so nothing was cut below it.
        """
        given = self._given
        if given is not None and frame.generation != given.generation and not self._segments.holds(given):
            raise self._cut(given)

    def _check_not_cut(self, given: Mark | None) -> None:
        """Raise LogCut if what was given is gone, otherwise than from the front."""
        if given is None or self._segments.holds(given):
            return
        firsts = self._segments.firsts()
        if not firsts or firsts[0] <= given.segment:
            raise self._cut(given)

    def _cut(self, given: Mark) -> LogCut:
        return LogCut(f"{self._directory} was cut at event {given.last} or before, while it was read; read it again")
