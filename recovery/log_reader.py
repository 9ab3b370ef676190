"""LogReader: the log of a node, live or not, read from another process (audits, recovery, the data pipeline).

It takes no lock and writes nothing. The directory ``log/`` holds segments named by the sequence of their first event
(``recovery.segment`` gives their layout, ``txobserver.frames`` that of the frames within). A reader may find the last
segment in the middle of a write: it stops at the last whole frame, and can go on from there later. Note that the log of
a node holds events that have not passed the commit point yet; a TxDecision or a plain event counts once a later frame,
a status, or the reader's own patience says that it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from recovery.log import LogReclaimed, gap
from recovery.segment import SegmentInfo, read_header, scan, segment_firsts, segment_path
from txobserver.events import Event
from txobserver.frames import Frame, TornFrame
from txobserver.ids import Position
from txobserver.store import StoreDamaged


class LogReader:
    """Reads the log below ``directory``, a node's directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "log"

    def segments(self) -> list[SegmentInfo]:
        """What each segment says of itself, in order. Raises StoreDamaged or StoreError."""
        found = []
        for first in segment_firsts(self._directory):
            path = segment_path(self._directory, first)
            try:
                found.append(read_header(path)[0])
            except (FileNotFoundError, TornFrame):
                continue
        return found

    def frames(self, first: int = 1) -> Iterator[Frame]:
        """Every whole frame with events from sequence ``first`` on, up to where the log ends now.

        Raises LogReclaimed when the log begins later, StoreDamaged when a checksum does not match.
        """
        firsts = segment_firsts(self._directory)
        if firsts and firsts[0] > first:
            raise LogReclaimed(f"the log begins at {firsts[0]}; the events before it have been reclaimed")
        firsts = firsts[max(bisect_right(firsts, first) - 1, 0) :]
        expected = firsts[0] if firsts else first
        for segment in firsts:
            path = segment_path(self._directory, segment)
            try:
                for _, frame in scan(path, whole=segment != firsts[-1]):
                    if frame.first != expected:
                        raise StoreDamaged(gap(self._directory, expected, frame.first))
                    expected = frame.last + 1
                    if frame.last >= first:
                        yield frame
            except TornFrame as error:
                if segment == firsts[-1]:
                    return
                raise StoreDamaged(f"{error}; restore it or let the node rejoin with a new store") from None
            except FileNotFoundError:
                raise LogReclaimed(f"the events from {first} on were reclaimed while they were read") from None

    def events(self, first: int = 1) -> Iterator[tuple[Position, Event]]:
        """Every event from sequence ``first`` on with its position, up to where the log ends now."""
        for frame in self.frames(first):
            for offset, event in enumerate(frame.events()):
                if frame.first + offset >= first:
                    yield Position(frame.generation, frame.first + offset), event
