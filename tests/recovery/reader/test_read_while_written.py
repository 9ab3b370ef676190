"""A log is read while another thread, or another process, writes it, cuts it or begins it anew."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from recovery.store.files import Files
from recovery.store.log import Log, LogReclaimed
from recovery.store.segment import scan, segment_path
from tests.support.logs import frame, open_log
from txobserver.frames import HEADER_SIZE, Frame
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged, StoreError

ALL = 1 << 20


def nothing() -> None:
    """It is not looked at."""


class Watched(Files):
    """Real files. ``look`` is called before and after each step of the writer, as if by another thread."""

    def __init__(self) -> None:
        self.look: Callable[[], None] = nothing
        self.sync_fails = False

    def create(self, path: Path) -> int:
        self.look()
        return super().create(path)

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        """Some bytes at a time, as a reader may see them come."""
        whole = b"".join(buffers)
        for at in range(0, len(whole), 37):
            super().write(descriptor, [whole[at : at + 37]])
            self.look()

    def sync(self, descriptor: int) -> None:
        self.look()
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)
        self.look()

    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        self.look()

    def remove(self, path: Path) -> None:
        self.look()
        super().remove(path)
        self.look()

    def replace(self, path: Path, by: Path) -> None:
        self.look()
        super().replace(path, by)
        self.look()

    def sync_directory(self, directory: Path) -> None:
        super().sync_directory(directory)
        self.look()


def firsts(frames: list[Frame]) -> list[int]:
    return [each.first for each in frames]


def opened(directory: Path, frames: int, segment_bytes: int) -> tuple[Log, Watched]:
    """A log with frames of three events."""
    files = Watched()
    log, _ = open_log(directory / "log", segment_bytes, files)
    for number in range(frames):
        log.append([frame(1 + 3 * number)])
    return log, files


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("segment_bytes", [ALL, 1])
def test_a_primary_sends_what_is_written_and_not_synced(tmp_path: Path, segment_bytes: int, fails: bool) -> None:
    """A power cut may take it from the primary, and its backups would be ahead of its disk."""
    log, files = opened(tmp_path, 2, segment_bytes)
    seen: list[list[int]] = []
    files.look = lambda: seen.extend(firsts(log.read(first, ALL)) for first in (1, 4, 7, 10, 13))
    files.sync_fails = fails
    if fails:
        with pytest.raises(StoreError):
            log.append([frame(7), frame(10)])
    else:
        log.append([frame(7), frame(10)])
    files.look = nothing
    assert len(seen) > 20 and all(found in ([1, 4], [4], []) for found in seen)
    assert firsts(log.read(1, ALL)) == ([1, 4] if fails else [1, 4, 7, 10])


def test_what_the_writer_has_reported_can_be_read_at_once(tmp_path: Path) -> None:
    """The core takes an answer without frames for a log that no longer holds them."""
    log, _ = open_log(tmp_path / "log", 300)
    for first in range(1, 60, 3):
        log.append([frame(first)])
        assert firsts(log.read(first, ALL)) == [first] and log.read(first + 3, ALL) == []


@pytest.mark.parametrize("last", [0, 3, 12, 21])
@pytest.mark.parametrize("segment_bytes", [ALL, 300, 150])
def test_a_read_at_every_step_of_a_cut(tmp_path: Path, segment_bytes: int, last: int) -> None:
    """It gives what stays, nothing of what goes or has come and is not synced, and calls nothing damaged."""
    log, files = opened(tmp_path, 9, segment_bytes)
    stays = list(range(1, last, 3))
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        assert firsts(log.read(1, ALL)) == stays
        assert log.read(last + 1, ALL) == []

    files.look = look
    log.truncate(last, Position(1, last))
    log.append([frame(last + 1, generation=2, size=99)])
    assert looks > 5
    files.look = nothing
    assert firsts(log.read(1, ALL)) == [*stays, last + 1] and firsts(log.read(last + 1, ALL)) == [last + 1]


@pytest.mark.parametrize("last", [1, 5, 20])
@pytest.mark.parametrize("segment_bytes", [ALL, 300, 150])
def test_a_read_at_every_step_of_a_cut_within_a_frame(tmp_path: Path, segment_bytes: int, last: int) -> None:
    """What stays of that frame is written anew, and is given when it is synced."""
    log, files = opened(tmp_path, 9, segment_bytes)
    begin = last - (last - 1) % 3
    before, stays = list(range(1, begin, 3)), list(range(1, begin + 1, 3))
    seen: list[list[int]] = []

    def look() -> None:
        found = log.read(1, ALL)
        assert not found or found[-1].last in (begin - 1, last)
        assert log.read(last + 1, ALL) == []
        seen.append(firsts(found))

    files.look = look
    log.truncate(last, Position(1, last))
    assert len(seen) > 5 and all(each == before for each in seen)
    log.append([frame(last + 1, generation=2, size=99)])
    assert seen[-1] == stays
    files.look = nothing
    assert firsts(log.read(1, ALL)) == [*stays, last + 1] and firsts(log.read(last, ALL)) == [last, last + 1]


@pytest.mark.parametrize("before", [0, 2, 12, 100])
@pytest.mark.parametrize("segment_bytes", [ALL, 300])
def test_a_read_at_every_step_of_a_log_that_is_begun_anew(tmp_path: Path, segment_bytes: int, before: int) -> None:
    """It gives nothing and says that the log no longer holds what was asked for: it is not damaged."""
    log, files = opened(tmp_path, 9, segment_bytes)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        for first in (1, 4, 25, 28):
            if first > before:
                assert log.read(first, ALL) == []
            else:
                with pytest.raises(LogReclaimed):
                    log.read(first, ALL)

    files.look = look
    log.reset(Position(3, before))
    log.append([frame(before + 1, generation=3, size=99)])
    assert looks > 5
    files.look = nothing
    assert firsts(log.read(before + 1, ALL)) == [before + 1]


class CutMeanwhile(Watched):
    """Between a reader's decision where to begin and its first byte the writer does something."""

    meanwhile: Callable[[], None] | None = None

    def reader(self, path: Path) -> BinaryIO:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().reader(path)


@pytest.mark.parametrize("asked", [1, 4, 73])
@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("anew", [True, False])
def test_a_log_that_is_cut_while_it_is_read_is_read_again(tmp_path: Path, anew: bool, synced: bool, asked: int) -> None:
    """The reader goes to where a frame stood, and finds others there, which no sync may have reached."""
    files = CutMeanwhile()
    log, _ = open_log(tmp_path / "log", ALL, files)
    for first in range(1, 100, 3):
        log.append([frame(first, size=3000)])
    assert log._segments.near(1, 94) > 0

    def meanwhile() -> None:
        if anew:
            log.reset(Position(2, 0))
        else:
            log.truncate(3, Position(1, 3))
        files.sync_fails = not synced
        begin = 1 if anew else 4
        try:
            log.append([frame(begin, 69, 3, size=1111), frame(begin + 69, 300, 3, size=1111)])
        except StoreError:
            assert not synced

    files.meanwhile = meanwhile
    found = log.read(asked, ALL)
    old, new = [] if anew else [(1, 3)], [(1, 69), (70, 369)] if anew else [(4, 72), (73, 372)]
    written = [*old, *(new if synced else [])]
    assert [(each.first, each.last) for each in found] == [(max(f, asked), end) for f, end in written if end >= asked]


class Reader(io.BytesIO):
    """A file that grows from one reading to the next, to these lengths; the last one stays."""

    def __init__(self, data: bytes, ends: list[int]) -> None:
        super().__init__(b"")
        self._data, self._ends = data, ends

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        at = self.tell()
        found = self._data[at : end if size is None or size < 0 else min(end, at + size)]
        self.seek(at + len(found))
        return found


class Growing(Files):
    """``ends``: how long the file is at each reading."""

    def __init__(self, ends: list[int]) -> None:
        self.ends = ends

    def reader(self, path: Path) -> BinaryIO:
        return Reader(path.read_bytes(), self.ends)


@pytest.mark.parametrize("held", [1, 2])
def test_a_read_meets_a_frame_mid_write(tmp_path: Path, held: int) -> None:
    """One reading finds a frame without its end; at the next it is whole, and another one stands behind it."""
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1 + 3 * number) for number in range(held)])
    path = segment_path(tmp_path / "log", 1)
    since = path.stat().st_size
    log.append([frame(1 + 3 * number) for number in range(held, held + 3)])
    log.close()
    whole = path.stat().st_size
    every = list(range(1, 3 * (held + 3), 3))
    for end in range(since + 1, whole + 1):
        meets = [end] if end - since < HEADER_SIZE else [end, end]  # readings of the frame: its header, what is behind
        for then in {end, end + 1, end + 60, end + 200, whole}:
            before = [since] * (1 + 2 * held)  # the segment's header, then two readings for each frame that was there
            files = Growing([*before, *meets, min(then, whole)])
            found = [each.first for _, each in scan(path, whole=False, files=files)]
            assert found == every[: len(found)] and len(found) >= held
            if then >= whole:
                assert found == every


def test_a_frame_that_is_damaged_at_each_reading_is_damaged(tmp_path: Path) -> None:
    """To read again does not make a damaged record torn, nor a torn one damaged."""
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1), frame(4), frame(7)])
    log.close()
    path = segment_path(tmp_path / "log", 1)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"TXHA") - 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamaged):
        list(scan(path, whole=False))
    path.write_bytes(data[: data.rindex(b"TXHA") - 7])
    assert [each.first for _, each in scan(path, whole=False)] == [1]
    with pytest.raises(StoreDamaged):
        list(scan(path))


def test_what_was_synced_and_is_gone_is_damage_to_a_read(tmp_path: Path) -> None:
    """Not a log that has been reclaimed: the operator would be told to keep it for longer."""
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1), frame(4)])
    path = segment_path(tmp_path / "log", 1)
    whole = path.read_bytes()
    for end in (whole.rindex(b"TXHA"), len(whole) - 3, 5):
        path.write_bytes(whole[:end])
        with pytest.raises(StoreDamaged):
            log.read(1, ALL)
    log.close()
