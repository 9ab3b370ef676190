"""The segments of a node's log as a reader finds them: which there are, and by their headers the frames in each."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from recovery.reader.marks import Mark
from recovery.store.groups import GROUP_HEADER_SIZE, group_header_at
from recovery.store.log import LogReclaimed
from recovery.store.segment import HEADER_ROOM, decode_header, segment_firsts, segment_path
from recovery.store.segments import gap
from txobserver.frames import HEADER_SIZE, TornFrame, bytes_behind, header_is_intact
from txobserver.ports.store import StoreDamaged, StoreError

_FIELDS = struct.Struct(">16xQQIQ")
"""Generation, first sequence, number of events and time of a frame's header (``txobserver.frames``)."""


class MarkedSegments:
    """Those in ``directory``, which a node may write, cut and reclaim meanwhile: each answer is of a moment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def firsts(self) -> list[int]:
        """First sequences of the segments that are there now, in order."""
        return segment_firsts(self.directory)

    def size(self, segment: int) -> int:
        """Bytes of a segment. Raises LogReclaimed."""
        try:
            return segment_path(self.directory, segment).stat().st_size
        except FileNotFoundError:
            raise self.reclaimed(segment) from None

    def marks(self, segment: int, offset: int = 0) -> Iterator[Mark]:
        """Every frame of a segment from ``offset`` on (0: all), by its header alone; ends at what is no whole frame.

        Raises LogReclaimed if the segment has gone.
        """
        path = segment_path(self.directory, segment)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise self.reclaimed(segment) from None
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
                    return  # torn or damaged: a reader of the frames will know which
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

    def lacks(self, first: int, last: int) -> StoreError:
        """What is to be said where nothing is found of events that must be there."""
        if self.firsts():
            return StoreDamaged(gap(self.directory, first, last + 1))
        return self.empty()

    def empty(self) -> StoreError:
        """The same where no segment is there at all."""
        return StoreError(f"{self.directory} holds nothing: its node begins its log anew, or has lost it; ask again")

    def reclaimed(self, sequence: int) -> LogReclaimed:
        """What is to be said where a segment, or the one with this event, is not there any more."""
        firsts = self.firsts()
        begins = f"begins at {firsts[0]}" if firsts else "is empty"
        return LogReclaimed(f"{self.directory} {begins}; the events from {sequence} on have been reclaimed")
