"""NodeLog: the log of one node's directory, by position: where each frame stands, any range of it, and backwards.

It takes no lock and writes nothing. It knows offsets, so that a range is read without what stands before it: headers
are looked at one by one, and only what is asked for is read and decoded. ``recovery.reader.log_reader`` gives the
events.
"""

from __future__ import annotations

import platform
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from recovery.reader.declarations import declared_in
from recovery.reader.log_reading import LogCut, LogReading
from recovery.reader.marked_segments import MarkedSegments
from recovery.reader.marks import END, Mark, mark_of
from recovery.store.lmdb_state import read_meta
from recovery.store.log import LogReclaimed
from recovery.store.segment import SegmentInfo, read_header, scan, segment_path
from txobserver.frames import Frame, TornFrame
from txobserver.ports.store import StoreDamaged, StoreError
from txobserver.vhosts import shown_name


class NodeLog:
    """Reads the log below ``directory``, a node's directory.

    ``node``: whose log was found there. Where it is read, maybe on another machine, frames of no other one are given.
    ``segments``: what stands there now.
    """

    def __init__(self, directory: Path, node: str | None = None) -> None:
        self.directory = directory / "log"
        self.segments = MarkedSegments(self.directory)
        self._node = node

    def identity(self) -> SegmentInfo | None:
        """What the log says of itself; None if it holds nothing. Raises StoreError."""
        for first in reversed(self.segments.firsts()):
            try:
                return read_header(segment_path(self.directory, first))[0]
            except (FileNotFoundError, TornFrame):
                continue
        return None

    def find(self, sequence: int, near: Mark | None = None) -> Mark | None:
        """Where the frame stands that holds this event; None behind the end of the log.

        ``near``: where an earlier one stands, if that is known. Raises LogReclaimed.
        """
        firsts = self.segments.firsts()
        at = bisect_right(firsts, sequence) - 1
        if at < 0:
            if firsts:
                raise self.segments.reclaimed(sequence)
            return None
        offset = near.offset if near is not None and near.segment == firsts[at] and near.first <= sequence else 0
        found = next((mark for mark in self.segments.marks(firsts[at], offset) if mark.last >= sequence), None)
        return self.find(sequence) if found is None and offset else found  # the log may have been made anew since

    def tail(self, near: Mark | None = None) -> Mark | None:
        """The last whole frame, None if there is none. ``near``: an earlier one, if that is known."""
        for segment in reversed(self.segments.firsts()):
            offset = near.offset if near is not None and near.segment == segment else 0
            last = None
            try:
                for last in self.segments.marks(segment, offset):  # noqa: B007
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
        path = segment_path(self.directory, tail.segment)
        whole = tail.segment != next(reversed(self.segments.firsts()), 0)
        try:
            for at, frame in scan(path, 0 if end is None else end.offset, whole):
                end = mark_of(tail.segment, at, frame)
        except (StoreDamaged, TornFrame, FileNotFoundError):
            return tail  # a reader of it says so
        return end

    def ranges(
        self, first: int, last: int, size: int, wanted: Callable[[Mark], bool] = lambda mark: True
    ) -> Iterator[tuple[Mark, Mark]]:
        """The frames with events from ``first`` to ``last``, in even runs of up to about ``size`` bytes: first and last
        of each.

        Frames that are not wanted are left out at the ends of runs. Raises LogReclaimed when a segment has gone,
        StoreDamaged or LogCut where an event has no frame, after the runs before that.
        """
        firsts = self.segments.firsts()
        segments = [each for each in firsts[max(bisect_right(firsts, first) - 1, 0) :] if each <= last]
        even = even_size(sum(map(self.segments.size, segments)), size)
        begin: Mark | None = None
        end: Mark | None = None
        gathered, expected = 0, first
        for segment in segments:
            for mark in self.segments.marks(segment):
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
        yield from LogReading(self.segments).forwards(first, last, start)

    def backwards(self, before: int) -> Iterator[Frame]:
        """Every frame with events before sequence ``before``, the latest first, as far back as the log goes.

        Raises StoreDamaged where one cannot be read, LogCut as ``frames``.
        """
        return LogReading(self.segments).backwards(before)

    def names(self) -> dict[int, str]:
        """Queues that are there, as of the last checkpoint; none where the state cannot be read: the log may know."""
        try:
            queues = read_meta(self.directory.parent).configuration.queues
        except StoreError:
            return {}
        return {spec.number: shown_name(spec.name) for spec in queues.values()}

    def declared(self, before: int) -> dict[int, str]:
        """Queues declared before a sequence, as far back as the log goes, also those that have been deleted since."""
        found: dict[int, str] = {}
        for segment in self.segments.firsts():
            if segment >= before:
                break
            with suppress(FileNotFoundError):  # it has been reclaimed meanwhile
                found.update(declared_in(segment_path(self.directory, segment)))
        return found

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


def even_size(total: int, most: int) -> int:
    """How large each of the fewest parts of ``total`` is that have at most ``most`` each, so that none is left over."""
    return -(-total // max(-(-total // most), 1))
