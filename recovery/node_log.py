"""NodeLog: the log of one node's directory, by position: where each frame stands, any range of it, and backwards.

It takes no lock and writes nothing. It knows offsets, so that a range is read without what stands before it: headers
are looked at one by one, and only what is asked for is read and decoded. ``recovery.log_reader`` gives the events.
"""

from __future__ import annotations

import os
import platform
import struct
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from recovery.declarations import declared_in
from recovery.lmdb_state import read_meta
from recovery.log import LogReclaimed, gap
from recovery.segment import SegmentInfo, decode_header, read_header, scan, segment_firsts, segment_path
from txobserver.frames import HEADER_SIZE, Frame, TornFrame, bytes_behind, header_is_intact
from txobserver.store import StoreDamaged, StoreError

END = (1 << 63) - 1
"""A sequence behind all others"""
_FIELDS = struct.Struct(">16xQQIQ")
"""Generation, first sequence, number of events and time of a frame's header (``txobserver.frames``)."""


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


class Landmarks:
    """Where some frames of a log were found, so that a search begins near by: without, it begins at the segment's."""

    def __init__(self) -> None:
        self._known: list[Mark] = []

    def find(self, log: NodeLog, sequence: int) -> Mark | None:
        """As ``log.find``."""
        near = self._before(sequence)
        if near is not None and next(log.marks(near.segment, near.offset), None) != near:
            self._known.clear()  # the log has been made anew
            near = None
        found = log.find(sequence, near)
        if found is not None and (near is None or found.segment != near.segment or found.offset - near.offset > APART):
            insort(self._known, found, key=_FIRST)
            del self._known[:-LANDMARKS]
        return found

    def _before(self, sequence: int) -> Mark | None:
        at = bisect_right(self._known, sequence, key=_FIRST)
        return self._known[at - 1] if at else None


class NodeLog:
    """Reads the log below ``directory``, a node's directory.

    ``node``: whose log was found there. Where it is read, maybe on another machine, frames of no other one are given.
    """

    def __init__(self, directory: Path, node: str | None = None) -> None:
        self.directory = directory / "log"
        self._node = node

    def firsts(self) -> list[int]:
        """First sequences of the segments that are there now, in order."""
        return segment_firsts(self.directory)

    def identity(self) -> SegmentInfo | None:
        """What the log says of itself; None if it holds nothing. Raises StoreError."""
        for first in reversed(self.firsts()):
            try:
                return read_header(segment_path(self.directory, first))[0]
            except (FileNotFoundError, TornFrame):
                continue
        return None

    def marks(self, segment: int, offset: int = 0) -> Iterator[Mark]:
        """Every frame of a segment from ``offset`` on (0: all), by its header alone; ends at what is no whole frame.

        Raises LogReclaimed if the segment has gone.
        """
        path = segment_path(self.directory, segment)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise self._reclaimed(segment) from None
        try:
            end = os.fstat(descriptor).st_size
            try:
                offset = offset or decode_header(os.pread(descriptor, 4096, 0), path)[1]
            except TornFrame:
                return
            while offset + HEADER_SIZE < end:
                header = os.pread(descriptor, HEADER_SIZE, offset)
                if not header_is_intact(header):
                    return  # torn or damaged: whoever reads it will know which
                size = HEADER_SIZE + bytes_behind(header)
                if offset + size > end:
                    return
                yield Mark(segment, offset, size, *_FIELDS.unpack_from(header))
                offset += size
        finally:
            os.close(descriptor)

    def find(self, sequence: int, near: Mark | None = None) -> Mark | None:
        """Where the frame stands that holds this event; None behind the end of the log.

        ``near``: where an earlier one stands, if that is known. Raises LogReclaimed.
        """
        firsts = self.firsts()
        at = bisect_right(firsts, sequence) - 1
        if at < 0:
            if firsts:
                raise self._reclaimed(sequence)
            return None
        offset = near.offset if near is not None and near.segment == firsts[at] and near.first <= sequence else 0
        found = next((mark for mark in self.marks(firsts[at], offset) if mark.last >= sequence), None)
        return self.find(sequence) if found is None and offset else found  # the log may have been made anew since

    def tail(self, near: Mark | None = None) -> Mark | None:
        """The last whole frame, None if there is none. ``near``: an earlier one, if that is known."""
        for segment in reversed(self.firsts()):
            offset = near.offset if near is not None and near.segment == segment else 0
            last = None
            try:
                for last in self.marks(segment, offset):  # noqa: B007
                    pass
            except LogReclaimed:
                continue
            if last is not None:
                return last
            if offset:  # cut since then
                return self.tail()
        return None

    def ranges(
        self, first: int, last: int, size: int, wanted: Callable[[Mark], bool] = lambda mark: True
    ) -> Iterator[tuple[Mark, Mark]]:
        """The frames with events from ``first`` to ``last``, in even runs of up to about ``size`` bytes: first and last
        of each.

        Frames that are not wanted are left out at the ends of runs. Raises LogReclaimed when a segment has gone.
        """
        firsts = self.firsts()
        segments = [each for each in firsts[max(bisect_right(firsts, first) - 1, 0) :] if each <= last]
        even = even_size(sum(map(self._size, segments)), size)
        begin: Mark | None = None
        end: Mark | None = None
        gathered = 0
        for segment in segments:
            for mark in self.marks(segment):
                if mark.last < first or not wanted(mark):
                    continue
                if mark.first > last:
                    break
                begin, end = begin or mark, mark
                gathered += mark.size
                if gathered >= even:
                    yield begin, end
                    begin, gathered = None, 0
        if begin is not None and end is not None:
            yield begin, end

    def frames(self, first: int, last: int = END, start: Mark | None = None) -> Iterator[Frame]:
        """Every whole frame with events from ``first`` to ``last``, up to where the log ends now.

        ``start``: where the one with ``first`` stands, if that is known. Raises LogReclaimed when the log begins later
        or is reclaimed meanwhile, StoreDamaged for a gap or a checksum that does not match, StoreError where the log of
        the node that was named is not.
        """
        self._check_whose()
        firsts = self.firsts()
        if firsts and firsts[0] > first:
            raise self._reclaimed(first)
        expected: int | None = None
        for segment in firsts[max(bisect_right(firsts, first) - 1, 0) :]:
            if segment > last:
                return
            offset = start.offset if start is not None and start.segment == segment else 0
            if expected is None and not offset:
                expected = segment
            try:
                for _, frame in scan(segment_path(self.directory, segment), offset, segment != firsts[-1]):
                    if expected is not None and frame.first != expected:
                        raise StoreDamaged(gap(self.directory, expected, frame.first))
                    expected = frame.last + 1
                    if frame.first > last:
                        return
                    if frame.last >= first:
                        yield frame
            except TornFrame as error:
                if segment == firsts[-1]:
                    return
                raise StoreDamaged(f"{error}; restore it or let the node rejoin with a new store") from None
            except FileNotFoundError:
                raise self._reclaimed(first) from None

    def backwards(self, before: int) -> Iterator[Frame]:
        """Every frame with events before sequence ``before``, the latest first, as far back as the log goes."""
        firsts = self.firsts()
        for segment in reversed(firsts[: bisect_right(firsts, before - 1)]):
            try:
                marks = [mark for mark in self.marks(segment) if mark.first < before]
                for mark in reversed(marks):
                    yield next(scan(segment_path(self.directory, segment), mark.offset))[1]
            except (LogReclaimed, FileNotFoundError):
                return

    def names(self) -> dict[int, str]:
        """Queues that are there, as of the last checkpoint; none where the state cannot be read: the log may know."""
        try:
            queues = read_meta(self.directory.parent).configuration.queues
        except StoreError:
            return {}
        return {spec.number: spec.name for spec in queues.values()}

    def declared(self, before: int) -> dict[int, str]:
        """Queues declared before a sequence, as far back as the log goes, also those that have been deleted since."""
        found: dict[int, str] = {}
        for segment in self.firsts():
            if segment >= before:
                break
            with suppress(FileNotFoundError):  # it has been reclaimed meanwhile
                found.update(declared_in(segment_path(self.directory, segment)))
        return found

    def _size(self, segment: int) -> int:
        try:
            return segment_path(self.directory, segment).stat().st_size
        except FileNotFoundError:
            raise self._reclaimed(segment) from None

    def _check_whose(self) -> None:
        """The same path leads nowhere on another machine, or to what that machine's own node wrote."""
        if self._node is None:
            return
        found = self.identity()
        if found is None or found.node != self._node:
            there = "nothing" if found is None else f"the log of node {found.node}"
            raise StoreError(
                f"{self.directory} holds {there} on {platform.node()}, and the log of node {self._node} where the "
                "query was planned: all machines must see the same directories, or read the nodes by address"
            )

    def _reclaimed(self, sequence: int) -> LogReclaimed:
        firsts = self.firsts()
        begins = f"begins at {firsts[0]}" if firsts else "is empty"
        return LogReclaimed(f"{self.directory} {begins}; the events from {sequence} on have been reclaimed")


def even_size(total: int, most: int) -> int:
    """How large each of the fewest parts of ``total`` is that have at most ``most`` each, so that none is left over."""
    return -(-total // max(-(-total // most), 1))
