"""The stream's own log: append-only segments. It is the truth; everything else follows from it.

Promise: what ``append`` returned from is on disk, whole and in order, and is read back as it was or not at all. After a
failed write or sync nothing more is accepted: what the kernel has dropped cannot be synced by trying again. What is
found at an opening may be such; before it counts, it is written again (docs/decisions/written-again.md).

A log that has begun always has a segment, if only one without a frame: an empty directory is damage.
One thread writes (``recovery.writer``), another reclaims; any thread reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

from recovery.store.crash_points import crash_point
from recovery.store.files import REAL_FILES, Files, explain
from recovery.store.groups import GROUP_HEADER_SIZE
from recovery.store.invariants import check_begun, check_cut, check_group
from recovery.store.open_segment import OpenSegment
from recovery.store.segment import SegmentInfo
from recovery.store.segments import Segments, gap
from txobserver.frames import Frame, TornFrame
from txobserver.ids import Position
from txobserver.invariants import CHECKS, checking
from txobserver.ports.store import StoreDamaged, StoreError


class LogReclaimed(StoreError):
    """Raised when a log no longer holds the events that were asked for: its retention has passed."""


class Log:
    """Segments in ``directory``. ``tail`` is the last position held, or the one before the first.

    Many methods: each change has a part that the rest may call, and one that may fail and then ends the log.
    """

    def __init__(
        self,
        directory: Path,
        describe: Callable[[int], SegmentInfo],
        segment_bytes: int,
        before: Position,
        files: Files = REAL_FILES,
    ) -> None:
        self._directory = directory
        self._describe = describe
        self._segment_bytes = segment_bytes
        self._files = files
        self._segments = Segments(directory, files)
        self._open: OpenSegment | None = None
        self._broken: StoreError | None = None
        self._cuts = 0  # how often the tail was set back, or the log begun anew
        self.tail = before

    # -- opening

    def begin(self, before: Position) -> None:
        """Make the first segment of a log that has none, behind ``before``, durably. Raises StoreError."""
        if len(self._segments.headless()) == len(self._segments.firsts):
            self._guarded(lambda: self._begin_behind(before))

    def recover(self, applied: Position, begun: bool = False) -> Iterator[Frame]:
        """Read what stands behind ``applied``, cut a torn tail, be ready to append. Raises StoreDamaged, StoreError.

        ``begun``: whether the log is known to have had a segment.
        """
        for first in reversed(self._segments.headless_of(begun, applied)):
            self._segments.remove(first)
        self.tail = applied
        end = since = 0
        for segment, offset, frame in self._segments.walk(applied):
            end = offset
            if frame is None:
                since = 0 if segment > applied.sequence else -1
                continue
            self._segments.note(segment, frame.first, offset)
            end += len(frame.data)
            if frame.last > applied.sequence:
                since = max(offset - GROUP_HEADER_SIZE, 0) if since < 0 else since
                self.tail = frame.position
                yield frame
        if self._segments.firsts:
            self._reopen(self._segments.firsts[-1], end, end if since < 0 else since)

    def inspect(self, applied: Position, begun: bool = False) -> Iterator[Frame]:
        """What ``recover`` reads, with the same checks; nothing is changed. Raises StoreDamaged, StoreError."""
        self._segments.leave_out(self._segments.headless_of(begun, applied))
        self.tail = applied
        for _, _, frame in self._segments.walk(applied):
            if frame is not None and frame.last > applied.sequence:
                yield frame

    def _reopen(self, first: int, end: int, since: int) -> None:
        """Continue the last segment behind its last whole frame. What stands from ``since`` on was not applied yet.

        That may have been written by a process that was killed before its sync (``found_is_not_synced``), or whose sync
        failed. It is about to count as durable, so it is written again. So is the directory: a segment that was made or
        removed just before may have neither come nor gone on the disk.
        """
        path = self._segments.path(first)
        self.close()
        try:
            self._open = OpenSegment.open(self._files, path)
            self._open.go_on(end, since)
        except OSError as error:
            raise explain(error, path) from error

    # -- reading

    @property
    def first(self) -> int:
        """The first sequence that can be read, one behind the tail when there is none."""
        firsts = self._segments.firsts  # looked at once: the thread that writes puts another one into its place
        return firsts[0] if firsts else self.tail.sequence + 1

    def read(self, first: int, max_bytes: int) -> list[Frame]:
        """Frames from sequence ``first`` on, at least one and about ``max_bytes`` in all.

        Where ``first`` lies within a frame, that one's events from there on come as a frame of their own. Nothing
        behind the tail is given: what is written and not synced may be gone after a power cut. Returns nothing when
        ``first`` lies behind the tail. Raises LogReclaimed or StoreDamaged.
        """
        while True:
            cuts = self._cuts  # before the tail, since a cut sets the tail first
            try:
                found = self._read(first, max_bytes, self.tail.sequence)
            except StoreError:
                if cuts == self._cuts:
                    raise
            else:
                if cuts == self._cuts:
                    return found
            # A cut went on meanwhile, so what was found may be of two logs, or of none.

    def _read(self, first: int, max_bytes: int, last: int) -> list[Frame]:
        """As ``read``, up to ``last``. All of that was synced, so whatever is not whole there is damaged."""
        found: list[Frame] = []
        if first > last:
            return found
        firsts = list(self._segments.firsts)  # looked at behind the tail: the segment that this is in is among them
        size = 0
        behind = firsts[max(bisect_right(firsts, first) - 1, 0) :]
        for segment in takewhile(lambda each: found or each <= first, behind):
            try:
                for _, frame in self._segments.scan(segment, self._segments.near(segment, first)):
                    if frame.last >= first:
                        begin = found[-1].last + 1 if found else first
                        if frame.first > begin or (found and frame.first < begin):
                            raise StoreDamaged(gap(self._directory, begin, frame.first))
                        found.append(frame.part(begin, frame.last))
                        size += len(frame.data)
                    if frame.last >= last or (found and size >= max_bytes):
                        return found
            except FileNotFoundError:
                raise LogReclaimed(f"the log no longer holds the events before {self.first}") from None
            except TornFrame as error:
                raise StoreDamaged(f"{error}; restore it or let the node rejoin with a new store") from None
        if not found and first < self.first:
            raise LogReclaimed(f"the log no longer holds the events before {self.first}")
        raise StoreDamaged(gap(self._directory, found[-1].last + 1 if found else first, last + 1))

    # -- writing (one thread)

    def append(self, frames: list[Frame]) -> None:
        """Write the frames in one go and sync once, if there are any. StoreError; then all after it is refused."""
        self._guarded(lambda: self._append(frames))

    def truncate(self, last: int, tail: Position) -> None:
        """Cut everything behind sequence ``last``, durably; ``tail`` is the position of that event.

        Of a frame that goes on behind ``last``, the beginning stays: who is told that this log holds what is up to
        ``last`` counts on it (``a_primary_that_ends_within_a_frame_of_another``). It is on the disk all the time.
        """
        self._guarded(lambda: self._truncate(last, tail))
        if CHECKS.on:
            check_cut(last, self.tail, tail)

    def reset(self, before: Position) -> None:
        """Remove every segment, and begin one behind ``before``, durably.

        Until that is done there may be any part of the old log, or none: only a store that is marked as resyncing may.
        """
        self._guarded(lambda: self._reset(before))
        if CHECKS.on:
            check_begun(before, self.tail, self._segments.firsts)

    def reclaim(self, applied: int, older_than: float) -> None:
        """Remove segments of events up to ``applied``, last written before ``older_than`` (seconds since 1970)."""
        while self._segments.reclaim_one(applied, older_than):
            crash_point("reclaim.segment-removed")

    def close(self) -> None:
        """Let go of the files."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._broken is not None:
            raise self._broken
        try:
            action()
            if CHECKS.on:
                self.check_invariants()
        except OSError as error:
            self._broken = explain(error, self._directory)
            raise self._broken from error
        except Exception as error:
            self._broken = error if isinstance(error, StoreError) else StoreError(f"{type(error).__name__}: {error}")
            raise

    def check_invariants(self) -> None:
        """What must be so when something has been written. Raises InvariantBroken."""
        with checking(str(self._directory)):
            self._segments.check_invariants(self.tail, self._open, self._cuts)

    def _append(self, frames: list[Frame]) -> None:
        if not frames:
            return
        tail = self.tail
        for frame in frames:
            if frame.first != tail.sequence + 1:
                raise StoreError(f"frame {frame.first} does not continue the log at {tail}")
            tail = frame.position
        log = self._open
        if log is None or (log.is_full(self._segment_bytes) and frames[0].first > self._segments.firsts[-1]):
            log = self._roll(frames[0].first)
        elif not log.has_groups:
            log.begin_anew(self._describe(self._segments.firsts[-1]))
        offset = log.append([frame.data for frame in frames])
        for frame in frames:
            self._segments.note(self._segments.firsts[-1], frame.first, offset)
            offset += len(frame.data)
        before, self.tail = self.tail, tail
        if CHECKS.on:
            check_group(frames, before, tail)

    def _roll(self, first: int) -> OpenSegment:
        """Begin a new segment."""
        self.close()
        self._open = OpenSegment.create(self._files, self._segments.path(first), self._describe(first))
        self._segments.firsts.append(first)
        return self._open

    def _truncate(self, last: int, tail: Position) -> None:
        """The thread that reclaims waits until the cut has ended: no segment that is looked at here goes meanwhile."""
        if self.tail.sequence <= last:
            self.tail = tail
            return
        with self._segments.changes:
            begins = self._segments.firsts[0]
            if begins > last + 1:
                raise StoreError(f"{self._directory} begins at {begins} and cannot be cut after {last}")
            end, within = self._segments.end_at(last)
            self._cut_to(tail if within is None else Position(tail.generation, within.first - 1))
            self.close()
            path = self._segments.remove_behind(last)
            self._open = OpenSegment.open(self._files, path)
            if within is None:
                self._open.cut(end)
            else:
                self._open.cut_within(end, within.part(within.first, last).data)
                self.tail = tail

    def _cut_to(self, tail: Position) -> None:
        """Before anything is cut: who begins to read now reads no further, and who reads already begins again."""
        self.tail = tail
        self._cuts += 1

    def _reset(self, before: Position) -> None:
        """The segment that is made changes the directory, and all that was removed before is synced with it."""
        self.close()
        with self._segments.changes:
            self._cut_to(Position(self.tail.generation, self.first - 1))  # of a log that holds nothing
            self._segments.forget_all()
            self._cut_to(before)
            self._segments.remove_all()
        crash_point("reset.segments-removed")
        self._roll(before.sequence + 1)

    def _begin_behind(self, before: Position) -> None:
        for first in self._segments.headless():
            self._segments.remove(first)
        self._roll(before.sequence + 1)
