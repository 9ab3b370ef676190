"""LogReader: the log of a node, live or not, read from another process (audits, recovery, the data pipeline).

It takes no lock and writes nothing. The directory ``log/`` holds segments named by the sequence of their first event
(``recovery.store.segment`` gives their layout, ``txobserver.frames`` that of the frames within). A reader may find the
last segment in the middle of a write: it stops at the last whole frame, and can go on from there later. Note that the
log of a node holds events that have not passed the commit point yet; a TxDecision or a plain event counts once a later
frame, a status, or the reader's own patience says that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recovery.reader.node_log import NodeLog
from recovery.store.segment import SegmentInfo, read_header, segment_path
from txobserver.events import Event
from txobserver.frames import Frame, TornFrame
from txobserver.ids import Position


class LogReader:
    """Reads the log below ``directory``, a node's directory."""

    def __init__(self, directory: Path) -> None:
        self._log = NodeLog(directory)

    def segments(self) -> list[SegmentInfo]:
        """What each segment says of itself, in order. Raises StoreDamaged or StoreError."""
        found = []
        for first in self._log.segments.firsts():
            try:
                found.append(read_header(segment_path(self._log.directory, first))[0])
            except (FileNotFoundError, TornFrame):
                continue
        return found

    def frames(self, first: int = 1) -> Iterator[Frame]:
        """Every whole frame with events from sequence ``first`` on, up to where the log ends now.

        Raises LogReclaimed when the log begins later or is reclaimed meanwhile, LogCut when its node cuts what was
        given and goes on otherwise, StoreDamaged for a gap or a checksum that does not match.
        """
        return self._log.frames(first)

    def events(self, first: int = 1) -> Iterator[tuple[Position, Event]]:
        """Every event from sequence ``first`` on with its position, up to where the log ends now."""
        for frame in self.frames(first):
            for offset, event in enumerate(frame.events()):
                if frame.first + offset >= first:
                    yield Position(frame.generation, frame.first + offset), event
