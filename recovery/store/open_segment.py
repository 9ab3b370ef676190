"""The segment that a log writes to: groups behind each other, each synced before the next one is begun."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recovery.store.crash_points import crash_point
from recovery.store.files import Files, write_again
from recovery.store.group_invariants import check_group_header
from recovery.store.groups import decode_group_header, encode_group_header
from recovery.store.segment import HEADER_ROOM, SegmentInfo, decode_header, encode_header, has_groups
from recovery.store.torn import lead
from txobserver.invariants import CHECKS

SHORTER = ".cut"
"""Before it takes a segment's place: what stays of it. It sorts before every segment."""


class OpenSegment:
    """A segment's file, open at its end. Every method raises OSError.

    ``size``: bytes up to there. ``has_groups``: whether it is of the present format.
    """

    def __init__(self, files: Files, path: Path, descriptor: int, size: int, has_groups: bool) -> None:
        self._files = files
        self._path = path
        self._descriptor = descriptor
        self.has_groups = has_groups
        self.size = size

    @staticmethod
    def create(files: Files, path: Path, info: SegmentInfo) -> OpenSegment:
        """A new one, whose header is on disk before any frame is."""
        descriptor = files.create(path)
        crash_point("segment.created")
        header = encode_header(info)
        try:
            files.write(descriptor, [header])
            files.sync(descriptor)
            files.sync_directory(path.parent)
        except OSError:
            files.close(descriptor)
            raise
        crash_point("segment.header-synced")
        return OpenSegment(files, path, descriptor, len(header), True)

    @staticmethod
    def open(files: Files, path: Path) -> OpenSegment:
        """One that is there, as long as it is."""
        with files.reader(path) as file:
            grouped = has_groups(file.read(HEADER_ROOM))
        descriptor = files.open(path)
        return OpenSegment(files, path, descriptor, files.size(descriptor), grouped)

    def is_full(self, most: int) -> bool:
        """Whether the log goes on in another one, if it can: behind ``most`` bytes, or one of an older format."""
        return self.size >= most or not self.has_groups

    def go_on(self, end: int, since: int) -> None:
        """Cut what is torn behind the last whole frame, which ends at ``end``; make all from ``since`` on durable."""
        group_ends = end
        if self.has_groups:
            with self._files.reader(self._path) as file:
                data = file.read()
            end, group = lead(data, decode_header(data[:HEADER_ROOM], self._path)[1], end)
            group_ends = group.end
        if self.size > end:
            self._files.truncate(self._descriptor, end)
        self.size = end
        self._forget_copy()
        write_again(self._files, self._descriptor, self._path, since)
        if end < group_ends:
            self._end_group()

    def cut(self, end: int) -> None:
        """Take away what is behind the frame that ends at ``end``, durably."""
        self._files.truncate(self._descriptor, end)
        crash_point("truncate.cut")
        self._files.sync(self._descriptor)
        self.size = end
        if self.has_groups:
            self._end_group()

    def cut_within(self, end: int, part: bytes) -> None:
        """As ``cut``, within the frame that begins behind ``end``: ``part`` is what stays of it.

        A copy takes the file's place when all of it is on disk, so a crash leaves the one or the other, and never less
        than what stays: that may be applied already (``a_cut_within_a_frame_never_takes_what_it_keeps``).
        """
        group = [encode_group_header(end, [part])] if self.has_groups else []
        self._replace(end, [*group, part])

    def begin_anew(self, info: SegmentInfo) -> None:
        """One of an older format that holds no frame takes the present one, all at once."""
        self._replace(0, [encode_header(info)])
        self.has_groups = True

    def append(self, frames: Sequence[bytes]) -> int:
        """Write a group in one go and sync once. Returns the offset of its first frame."""
        header = [encode_group_header(self.size, frames)] if self.has_groups else []
        if header and CHECKS.on:
            check_group_header(decode_group_header(header[0]), self.size, sum(map(len, frames)))
        crash_point("log.before-write")
        self._files.write(self._descriptor, [*header, *frames])
        crash_point("log.written")
        self._files.sync(self._descriptor)
        crash_point("log.synced")
        begins = self.size + sum(map(len, header))
        self.size = begins + sum(map(len, frames))
        return begins

    def close(self) -> None:
        """Let go of the file."""
        self._files.close(self._descriptor)

    def _replace(self, end: int, buffers: Sequence[bytes]) -> None:
        """What stands up to ``end``, with this behind it, takes the place of the file."""
        self._forget_copy()
        copy = self._path.parent / SHORTER
        descriptor = self._files.copy(self._path, copy, end)
        try:
            self._files.write(descriptor, buffers)
            self._files.sync(descriptor)
            self._files.replace(self._path, copy)
            self._files.sync_directory(self._path.parent)
        except OSError:
            self._files.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self.size = end + sum(map(len, buffers))

    def _forget_copy(self) -> None:
        """A crash may have left one."""
        if SHORTER in self._files.names(self._path.parent):
            self._files.remove(self._path.parent / SHORTER)

    def _end_group(self) -> None:
        """A group was cut where the file ends now: say so, durably, before anything is written behind it."""
        header = encode_group_header(self.size, [])
        self._files.write(self._descriptor, [header])
        crash_point("truncate.group-ended")
        self._files.sync(self._descriptor)
        self.size += len(header)
