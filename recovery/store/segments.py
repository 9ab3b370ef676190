"""The segments of a log: which there are, what their frames say of each other, and where to look for an event.

``recovery.store.log`` writes to the last one. What is read here may be damaged, torn or have holes, and says so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from recovery.store.crash_points import crash_point
from recovery.store.files import Files, explain
from recovery.store.invariants import check_log
from recovery.store.open_segment import OpenSegment
from recovery.store.segment import read_header, scan, segment_firsts, segment_path
from txobserver.frames import Frame, TornFrame
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged

INDEX_EVERY = 64 << 10


def gap(directory: Path, expected: int, found: int) -> str:
    """What is said of a log with a hole."""
    return f"{directory} lacks the events {expected} to {found - 1}; let the node rejoin with a new store"


class Segments:
    """The segments in ``directory``, each named by the sequence of its first event: ``firsts``, in order.

    One thread adds and removes them, another reclaims: each holds ``changes`` where it removes one. Any thread reads,
    and looks at ``firsts`` once: another list may stand there next.
    """

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files
        self.firsts = segment_firsts(directory, files)
        self.changes = Lock()
        self._index: dict[int, list[tuple[int, int]]] = {}

    def check_invariants(self, tail: Position, written: OpenSegment | None, cuts: int) -> None:
        """What must be so of a log that ends at ``tail`` and writes to this segment. Raises AssertionError."""
        check_log(self.firsts, tail, self._index, written, cuts)

    def path(self, first: int) -> Path:
        """The file of a segment."""
        return segment_path(self._directory, first)

    # -- reading

    def start(self, first: int) -> int:
        """The offset of its first frame. Raises TornFrame without a whole header, StoreError."""
        path = self.path(first)
        try:
            return read_header(path, self._files)[1]
        except OSError as error:
            raise explain(error, path) from error

    def scan(self, first: int, offset: int = 0, whole: bool = True) -> Iterator[tuple[int, Frame]]:
        """As ``recovery.store.segment.scan``. Raises FileNotFoundError where it has gone, else StoreError."""
        path = self.path(first)
        try:
            yield from scan(path, offset, whole, self._files)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise explain(error, path) from error

    def end_at(self, last: int) -> tuple[int, Frame | None]:
        """The offset behind the last frame that ends by ``last``, and the frame that ``last`` lies within, if any."""
        segment = self.firsts[max(bisect_right(self.firsts, last) - 1, 0)]
        end = self.start(segment)
        for offset, frame in self.scan(segment, whole=False):
            if frame.last > last:
                return end, frame if frame.first <= last else None
            end = offset + len(frame.data)
        return end, None

    def note(self, segment: int, sequence: int, offset: int) -> None:
        """The frame that begins with this event stands there: some of them are kept in mind."""
        index = self._index.setdefault(segment, [])
        if not index or offset - index[-1][1] >= INDEX_EVERY:
            index.append((sequence, offset))

    def near(self, segment: int, sequence: int) -> int:
        """An offset at which a search for the event may begin; 0 for the segment's beginning."""
        index = self._index.get(segment, [])
        at = bisect_right(index, sequence, key=lambda each: each[0]) - 1
        return index[at][1] if at >= 0 else 0

    def headless(self) -> list[int]:
        """The last segments, if a crash between their creation and the sync of their headers left them without one."""
        headless: list[int] = []
        for first in reversed(self.firsts):
            try:
                self.start(first)
                break
            except TornFrame:
                headless.insert(0, first)
        return headless

    def headless_of(self, begun: bool, applied: Position) -> list[int]:
        """As ``headless``; raises StoreDamaged where a log that has begun holds nothing else."""
        headless = self.headless()
        if begun and len(headless) == len(self.firsts):
            raise StoreDamaged(
                f"{self._directory} holds no log, and there was one: what was acknowledged behind {applied} may have "
                "been in it; restore it or let the node rejoin with a new store"
            )
        return headless

    def walk(self, applied: Position) -> Iterator[tuple[int, int, Frame | None]]:
        """(segment, offset, frame) from the segment on that goes on behind ``applied``; None where a segment begins."""
        start = bisect_right(self.firsts, applied.sequence + 1) - 1
        if self.firsts and start < 0:
            raise StoreDamaged(f"{self._directory} lacks the events between {applied} and {self.firsts[0]}")
        expected: int | None = None
        generation = applied.generation
        for first in self.firsts[max(start, 0) :]:
            if expected is not None and first != expected:
                raise StoreDamaged(gap(self._directory, expected, first))
            expected = first
            try:
                yield first, self.start(first), None
            except TornFrame as error:
                raise StoreDamaged(f"{error}; restore it or let the node rejoin with a new store") from None
            for offset, frame in self.scan(first, whole=first != self.firsts[-1]):
                if frame.first != expected:
                    raise StoreDamaged(gap(self._directory, expected, frame.first))
                if frame.last > applied.sequence and frame.generation < generation:
                    raise StoreDamaged(
                        f"{self._directory} holds {frame.position} behind events of generation {generation}, "
                        "which cannot be; let the node rejoin with a new store"
                    )
                expected, generation = frame.last + 1, max(generation, frame.generation)
                yield first, offset, frame
        if expected is not None and expected <= applied.sequence:
            raise StoreDamaged(gap(self._directory, expected, applied.sequence + 1))

    # -- removing

    def leave_out(self, last: Sequence[int]) -> None:
        """These, the last ones, are not looked at; their files stay."""
        self.firsts = self.firsts[: len(self.firsts) - len(last)]

    def remove(self, first: int) -> None:
        """One of which no frame was read. Raises OSError."""
        self._files.remove(self.path(first))
        self.firsts.remove(first)

    def remove_behind(self, last: int) -> Path:
        """All but one that begin behind this event, durably; the file of what is the last one then. Raises OSError."""
        while len(self.firsts) > 1 and self.firsts[-1] > last:
            first = self.firsts.pop()
            self._files.remove(self.path(first))
            self._index.pop(first, None)
        self._files.sync_directory(self._directory)
        crash_point("truncate.segments-removed")
        self._index.pop(self.firsts[-1], None)
        return self.path(self.firsts[-1])

    def forget_all(self) -> None:
        """None is here any more, for all who read; ``remove_all`` follows."""
        self.firsts, self._index = [], {}

    def remove_all(self) -> None:
        """Whatever is in the directory, the last one first. Raises OSError."""
        for first in reversed(segment_firsts(self._directory, self._files)):
            self._files.remove(self.path(first))

    def reclaim_one(self, applied: int, older_than: float) -> bool:
        """Remove the first segment if it is behind ``applied`` and that old; whether it was. See ``Log.reclaim``.

        Another thread writes meanwhile, and may cut: the one segment that it leaves stays.
        """
        with self.changes:
            if len(self.firsts) < 2 or self.firsts[1] > applied + 1:
                return False
            path = self.path(self.firsts[0])
            if self._files.modified(path) >= older_than:
                return False
            self._index.pop(self.firsts.pop(0), None)
            self._files.remove(path)
        return True
