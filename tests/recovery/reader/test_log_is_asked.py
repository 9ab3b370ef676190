"""What the loop asks of a log while the thread that writes changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recovery.store.log import Log
from recovery.store.segment import segment_path
from tests.support.logs import frame, open_log
from txobserver.frames import Frame


class Replaced(list[int]):
    """The first sequences of a log's segments; a reader that looks how many there are gives the writer time to reset
    it."""

    def __init__(self, log: Log) -> None:
        super().__init__(log._segments.firsts)
        self._log = log

    def __len__(self) -> int:
        self._log._segments.firsts = []
        return super().__len__()


def test_the_first_sequence_is_asked_for_while_the_log_is_reset(tmp_path: Path) -> None:
    """The loop asks, and another thread resets the log between its two looks."""
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1)])
    log._segments.firsts = Replaced(log)
    assert log.first == 1
    assert log.first == log.tail.sequence + 1, "now there is none"


def test_a_portion_is_full_with_the_frame_that_fills_it(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path / "log")
    frames = [frame(1), frame(4), frame(7)]
    log.append(frames)
    size = len(frames[0].data)
    assert len(frames[1].data) == size
    for room, count in ((1, 1), (size, 1), (size + 1, 2), (2 * size, 2), (3 * size, 3), (9 * size, 3)):
        assert [each.first for each in log.read(1, room)] == [1, 4, 7][:count]


def test_what_was_read_before_its_segments_were_removed_is_given(tmp_path: Path) -> None:
    """Another thread removes them in the middle of a reading."""
    log, _ = open_log(tmp_path / "log", 1)
    for first in (1, 4):
        log.append([frame(first)])
    found, scan = log._segments.scan, log._segments.firsts

    def removing(segment: int, *args: int, **options: bool) -> Iterator[tuple[int, Frame]]:
        yield from found(segment, *args, **options)
        log._segments.firsts = scan[-1:]

    log._segments.scan = removing  # type: ignore[method-assign]
    assert [each.first for each in log.read(1, 1 << 20)] == [1, 4]


def test_a_segment_that_has_just_been_made_ends_a_reading(tmp_path: Path) -> None:
    """Its header is being written by the thread of the log, and nothing stands behind it."""
    log, _ = open_log(tmp_path / "log")
    for first in (1, 4):
        log.append([frame(first)])
    log._segments.firsts = [*log._segments.firsts, 7]
    segment_path(tmp_path / "log", 7).write_bytes(b"TX")
    assert [each.first for each in log.read(1, 1 << 20)] == [1, 4]
