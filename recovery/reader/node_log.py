"""NodeLog: the log of one node's directory, by position: where each frame stands, any range of it, and backwards.

It takes no lock and writes nothing. It knows offsets, so that a range is read without what stands before it: headers
are looked at one by one, and only what is asked for is read and decoded. ``recovery.reader.log_reader`` gives the
events.
"""

from __future__ import annotations

import os
import platform
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from recovery.reader.declarations import declared_in
from recovery.reader.marks import Mark, mark_of
from recovery.store.groups import GROUP_HEADER_SIZE, group_header_at
from recovery.store.lmdb_state import read_meta
from recovery.store.log import LogReclaimed
from recovery.store.segment import (
    HEADER_ROOM,
    SegmentInfo,
    decode_header,
    read_header,
    scan,
    segment_firsts,
    segment_path,
)
from recovery.store.segments import gap
from txobserver.frames import HEADER_SIZE, Frame, TornFrame, bytes_behind, header_is_intact
from txobserver.ports.store import StoreDamaged, StoreError

END = (1 << 63) - 1
"""A sequence behind all others"""
_FIELDS = struct.Struct(">16xQQIQ")
"""Generation, first sequence, number of events and time of a frame's header (``txobserver.frames``)."""
READINGS = 3
"""How often a place is read before it counts as damaged, or gone: the node may have cut its log meanwhile"""


class LogCut(StoreError):
    """The log was cut, or begun anew, behind what its reader has been given already: to be read again."""


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
                offset = offset or decode_header(os.pread(descriptor, HEADER_ROOM, 0), path)[1]
            except TornFrame:
                return
            while offset + HEADER_SIZE < end:
                header = os.pread(descriptor, HEADER_SIZE, offset)
                if group_header_at(header, offset) is not None:
                    offset += GROUP_HEADER_SIZE
                    continue
                if not header_is_intact(header):
                    return  # torn or damaged: whoever reads it will know which
                size = HEADER_SIZE + bytes_behind(header)
                if offset + size > end:
                    return
                yield Mark(segment, offset, size, *_FIELDS.unpack_from(header))
                offset += size
        finally:
            os.close(descriptor)

    def holds(self, mark: Mark) -> bool:
        """Whether that very frame still stands where it was found."""
        try:
            return next(self.marks(mark.segment, mark.offset), None) == mark
        except LogReclaimed:
            return False

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

    def end(self, near: Mark | None = None) -> Mark | None:
        """The last frame that a start would take; None if there is none in the last segment that has one by its header.

        Of a group that a power cut has torn, whole frames may be left behind what is not. ``near``: what it was before.
        """
        tail = self.tail(near)
        if tail is None:
            return None
        end = near if near is not None and near.segment == tail.segment and near.offset <= tail.offset else None
        path, whole = segment_path(self.directory, tail.segment), tail.segment != next(reversed(self.firsts()), 0)
        try:
            for at, frame in scan(path, 0 if end is None else end.offset, whole):
                end = mark_of(tail.segment, at, frame)
        except (StoreDamaged, TornFrame, FileNotFoundError):
            return tail  # whoever reads it says so
        return end

    def lacks(self, first: int, last: int) -> StoreError:
        """What is to be said where nothing is found of events that must be there."""
        if self.firsts():
            return StoreDamaged(gap(self.directory, first, last + 1))
        return self.empty()

    def empty(self) -> StoreError:
        """The same where no segment is there at all."""
        return StoreError(f"{self.directory} holds nothing: its node begins its log anew, or has lost it; ask again")

    def ranges(
        self, first: int, last: int, size: int, wanted: Callable[[Mark], bool] = lambda mark: True
    ) -> Iterator[tuple[Mark, Mark]]:
        """The frames with events from ``first`` to ``last``, in even runs of up to about ``size`` bytes: first and last
        of each.

        Frames that are not wanted are left out at the ends of runs. Raises LogReclaimed when a segment has gone,
        StoreDamaged or LogCut where an event has no frame, after the runs before that.
        """
        firsts = self.firsts()
        segments = [each for each in firsts[max(bisect_right(firsts, first) - 1, 0) :] if each <= last]
        even = even_size(sum(map(self._size, segments)), size)
        begin: Mark | None = None
        end: Mark | None = None
        gathered, expected = 0, first
        for segment in segments:
            for mark in self.marks(segment):
                if mark.first > last or mark.first > expected:
                    break
                expected = max(expected, mark.last + 1)
                if mark.last < first or not wanted(mark):
                    continue
                begin, end = begin or mark, mark
                gathered += mark.size
                if gathered >= even:
                    yield begin, end
                    begin, gathered = None, 0
        if begin is not None and end is not None:
            yield begin, end
        if expected <= last:
            for _ in self.frames(expected, last):  # says what is wrong there
                pass
            raise LogCut(f"{self.directory} was cut at {expected} or before, while it was looked at; read it again")

    def frames(self, first: int, last: int = END, start: Mark | None = None) -> Iterator[Frame]:
        """Every whole frame with events from ``first`` to ``last``, up to where the log ends now.

        ``start``: where the one with ``first`` stands, if that is known. Raises LogReclaimed when the log begins later
        or is reclaimed meanwhile, LogCut when it is cut at ``start``, or behind what was given and goes on otherwise,
        StoreDamaged for a gap or a checksum that does not match, StoreError where the log of the node that was named
        is not.
        """
        self._check_whose()
        self._check_not_cut(start)
        given: Mark | None = None
        failures = 0
        while True:
            firsts = self.firsts()
            if firsts[0] > first if firsts else failures:
                raise self._reclaimed(first)
            try:
                for mark, frame in self._walk(firsts, first, last, start):
                    self._check_follows(given, frame)
                    given = start = mark
                    first, failures = frame.last + 1, 0
                    yield frame
                return
            except (StoreDamaged, FileNotFoundError) as error:
                failures += 1
                self._check_not_cut(given)
                if failures == READINGS:
                    raise error if isinstance(error, StoreDamaged) else self._reclaimed(first) from None

    def _walk(self, firsts: list[int], first: int, last: int, start: Mark | None) -> Iterator[tuple[Mark, Frame]]:
        """As ``frames``, of the segments that were there. Raises StoreDamaged and FileNotFoundError, also for a cut."""
        expected: int | None = None
        for segment in firsts[max(bisect_right(firsts, first) - 1, 0) :]:
            if segment > last:
                return
            offset = start.offset if start is not None and start.segment == segment else 0
            if expected is None and not offset:
                expected = segment
            try:
                for at, frame in scan(segment_path(self.directory, segment), offset, segment != firsts[-1]):
                    if frame.first > first if expected is None else frame.first != expected:
                        raise StoreDamaged(gap(self.directory, expected or first, frame.first))
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
        """Every frame with events before sequence ``before``, the latest first, as far back as the log goes.

        Raises StoreDamaged where one cannot be read, LogCut as ``frames``.
        """
        given: Mark | None = None
        failures = 0
        while True:
            try:
                for mark, frame in self._walk_back(before):
                    self._check_follows(given, frame)
                    given, before, failures = mark, frame.first, 0
                    yield frame
                return
            except (StoreDamaged, LogReclaimed, FileNotFoundError) as error:
                if not isinstance(error, StoreDamaged) and next(iter(self.firsts()), before) >= before:
                    return
                failures += 1
                self._check_not_cut(given)
                if failures == READINGS:
                    raise

    def _walk_back(self, before: int) -> Iterator[tuple[Mark, Frame]]:
        """As ``backwards``, of the segments that are there now."""
        firsts = self.firsts()
        ends = [*(first - 1 for first in firsts[1:]), END]
        for segment, end in reversed(list(zip(firsts, ends, strict=True))):
            if segment >= before:
                continue
            marks = [mark for mark in self.marks(segment) if mark.first < before]
            if (marks[-1].last if marks else segment - 1) < min(before - 1, end):
                self._read_out(segment, marks[-1].offset if marks else 0, end)
            for mark in reversed(marks):
                found = next(scan(segment_path(self.directory, segment), mark.offset), None)
                if found is None or mark_of(segment, *found) != mark:
                    raise StoreDamaged(f"{self.directory} has changed at event {mark.first}; read it again")
                yield mark, found[1]

    def _read_out(self, segment: int, offset: int, end: int) -> None:
        """Raise what is wrong behind the last frame of a segment that was found, unless the log may end there."""
        last = segment - 1
        with suppress(TornFrame):
            for _, frame in scan(segment_path(self.directory, segment), offset, end != END):
                last = frame.last
        if end != END:
            raise self.lacks(min(last + 1, end), end)

    def _check_follows(self, given: Mark | None, frame: Frame) -> None:
        """Raise LogCut if ``frame`` may be of another history than what was given just before it.

        Within a generation there is one. Between two, what was given stands there still, so nothing was cut below it.
        """
        if given is not None and frame.generation != given.generation and not self.holds(given):
            raise self._cut(given)

    def _check_not_cut(self, given: Mark | None) -> None:
        """Raise LogCut if what was given is gone, otherwise than from the front."""
        if given is None or self.holds(given):
            return
        firsts = self.firsts()
        if not firsts or firsts[0] <= given.segment:
            raise self._cut(given)

    def _cut(self, given: Mark) -> LogCut:
        return LogCut(f"{self.directory} was cut at event {given.last} or before, while it was read; read it again")

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
