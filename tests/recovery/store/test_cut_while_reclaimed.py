"""The log is cut, or begun anew, also while another thread reclaims old segments, or reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

import pytest

from recovery.store import segments as segments_module
from recovery.store.log import Log, LogReclaimed
from recovery.store.segment import segment_firsts, segment_path
from recovery.store.segments import INDEX_EVERY
from tests.recovery.reader.test_read_while_written import ALL, CutMeanwhile
from tests.support.logs import describe, frame, open_log
from txobserver.frames import Frame
from txobserver.ids import Position


def meanwhile(what: Callable[[], None], threads: list[Thread]) -> None:
    """Another thread does it, or waits for what goes on here."""
    threads.append(Thread(target=what))
    threads[-1].start()
    threads[-1].join(0.3)


def check(directory: Path, log: Log, last: int, applied: int, before: list[Frame]) -> None:
    """The log was cut there: what stays of it is read back, and it goes on."""
    log.append([frame(last + 1, generation=2)])
    left = [each for each in before if log.first <= each.first and each.last <= last]
    assert [*left, frame(last + 1, generation=2)] == log.read(log.first, ALL)
    log.close()
    again = Log(directory, describe, ALL, Position(0, 0))
    found = list(again.recover(Position(1, applied), begun=True))
    assert found == [*(each for each in left if each.first > applied), frame(last + 1, generation=2)]
    again.close()


@pytest.mark.plain
def test_a_segment_is_reclaimed_while_the_cut_looks_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knew the segment by its number among those that are there, and cut the one behind it."""
    directory = tmp_path / "log"
    log, _ = open_log(directory, 300)
    frames = [frame(1 + 3 * number) for number in range(6)]
    for each in frames:
        log.append([each])
    second = segment_firsts(directory)[1]
    assert len(segment_firsts(directory)) > 2
    real, threads = segments_module.bisect_right, list[Thread]()

    def bisect(firsts: Sequence[int], wanted: int) -> int:
        found = real(firsts, wanted)
        if not threads:
            meanwhile(lambda: log.reclaim(second - 1, 1e12), threads)
        return found

    monkeypatch.setattr(segments_module, "bisect_right", bisect)
    log.truncate(second + 2, Position(1, second + 2))
    monkeypatch.undo()
    threads[0].join()
    check(directory, log, second + 2, second - 1, frames)
    assert log.first == second


def test_a_segment_is_reclaimed_while_the_cut_looks_where_it_ends(tmp_path: Path) -> None:
    """It cut the next one where this one was to be cut."""
    directory, threads = tmp_path / "log", list[Thread]()
    files = CutMeanwhile()
    log, _ = open_log(directory, 300, files)
    frames = [frame(1, size=400), *(frame(first) for first in (4, 7, 10, 13, 16))]
    for each in frames:
        log.append([each])
    assert segment_firsts(directory)[:2] == [1, 4] and segment_path(directory, 1).stat().st_size > 1000
    files.meanwhile = lambda: meanwhile(lambda: log.reclaim(3, 1e12), threads)
    log.truncate(3, Position(1, 3))
    threads[0].join()
    check(directory, log, 3, 3, frames)


class Looking(Log):
    """Another thread reads just before those who read are told that what is there goes."""

    look: Callable[[], None] | None = None

    def _cut_to(self, tail: Position) -> None:
        if self.look is not None:
            self.look()
        super()._cut_to(tail)
        if self.look is not None:
            self.look()


@pytest.mark.parametrize("before", [0, 9, 40])
def test_a_reader_of_a_log_that_is_begun_anew_is_told_of_one_of_the_two(tmp_path: Path, before: int) -> None:
    """It was told that what it asked for had been reclaimed, where the log was behind that, and began anew."""
    log = Looking(tmp_path / "log", describe, 300, Position(0, 0))
    (tmp_path / "log").mkdir()
    frames = [frame(1 + 3 * number) for number in range(6)]
    for each in frames:
        log.append([each])
    seen: list[object] = []

    def look() -> None:
        for asked in (1, 10):
            try:
                seen.append((asked, len(log.read(asked, ALL))))
            except LogReclaimed:
                seen.append((asked, "reclaimed"))

    log.look = look
    log.reset(Position(2, before))
    new = [(asked, 0 if asked > before else "reclaimed") for asked in (1, 10)]
    assert set(seen) <= {(1, 6), (10, 3), (1, 0), (10, 0), *new} and seen[:2] == [(1, 6), (10, 3)] and seen[-2:] == new


def test_what_stands_in_a_segment_that_was_cut_away_is_not_looked_for_in_its_successor(tmp_path: Path) -> None:
    """It begins at the same event, and its frames are of other lengths."""
    log, _ = open_log(tmp_path / "log", segment_bytes=1)
    log.append([frame(1)])
    large = [frame(4 + 3 * at, size=INDEX_EVERY // 2) for at in range(3)]
    log.append(large)
    log.truncate(3, Position(1, 3))
    small = [frame(4, size=INDEX_EVERY), frame(7), frame(10, size=30)]
    log.append(small)
    for each in (*small, *reversed(small)):
        assert log.read(each.first, 1) == [each]
