"""A log is read, or cut, from within a frame: another node's log may end there."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.reader.node_log import NodeLog
from recovery.store.files import REWRITE_BYTES
from recovery.store.log import Log
from tests.recovery.reader.test_read_while_written import nothing, opened
from tests.recovery.store.test_log import FailingFiles, filled
from tests.simulation.fake_files import Crashed, FakeFiles
from tests.support.logs import describe, frame, open_log
from txobserver.ids import Position
from txobserver.ports.store import StoreError

WITHIN = [1, 2, 4, 5, 7, 13, 26]


@pytest.mark.parametrize("segment_bytes", [300, 1, 1 << 20])
@pytest.mark.parametrize("last", WITHIN)
def test_a_cut_within_a_frame_keeps_its_first_events(tmp_path: Path, last: int, segment_bytes: int) -> None:
    """A node that is told that the log holds what is up to there counts on it, also after a restart."""
    filled(tmp_path / "log", 9, segment_bytes)
    log, found = open_log(tmp_path / "log", segment_bytes)
    before = [event for each in found for event in each.events()][:last]
    log.truncate(last, Position(1, last))
    assert log.tail == Position(1, last)
    assert [event for each in log.read(1, 1 << 20) for event in each.events()] == before
    log.append([frame(last + 1, generation=2)])
    log.close()
    log, found = open_log(tmp_path / "log", segment_bytes)
    assert [event for each in found for event in each.events()] == [*before, *frame(last + 1).events()]
    assert {each.time_ms for each in found if each.last == last} == {1000 * (last - (last - 1) % 3)}
    assert log.tail == Position(2, last + 3)


def test_a_cut_within_a_frame_is_durable_at_every_step() -> None:
    """A crash leaves the log as it was, or cut before that frame or within it; what was returned from is there."""
    for steps in range(30):
        for seed in range(20):
            files = FakeFiles(lambda: 0.0)
            log = Log(Path("log"), describe, 300, Position(0, 0), files)
            assert not list(log.recover(Position(0, 0)))
            log.append([frame(1 + 3 * number) for number in range(3)])
            log.append([frame(10)])
            files.steps_to_crash = steps
            done = False
            with suppress(Crashed):
                log.truncate(5, Position(1, 5))
                done = True
            files.crash(random.Random(seed))
            log = Log(Path("log"), describe, 300, Position(0, 0), files)
            last = [each.last for each in log.recover(Position(0, 0))][-1]
            assert last == 5 if done else last in (5, 9, 12)


@pytest.mark.parametrize("segment_bytes", [300, 1, 1 << 20])
def test_a_cut_within_a_frame_never_takes_what_it_keeps(segment_bytes: int) -> None:
    """Its beginning may be applied, and a checkpoint that holds it be written while the log is cut: a log that lacked
    it for a moment, and was found so after a crash, was taken for damaged.
    """
    for steps, seed in itertools.product(range(30), range(20)):
        files = FakeFiles(lambda: 0.0)
        log = Log(Path("log"), describe, segment_bytes, Position(0, 0), files)
        log.append([frame(1 + 3 * number) for number in range(3)])
        log.append([frame(10)])
        files.steps_to_crash = steps
        with suppress(Crashed):
            log.truncate(5, Position(1, 5))
        if seed:  # else the process was killed, and the machine went on
            files.crash(random.Random(seed))
        files.steps_to_crash = None
        applied = Position(1, 5)
        again = Log(Path("log"), describe, segment_bytes, applied, files)
        behind = list(again.recover(applied, begun=True))
        assert [each.last for each in behind] in ([], [6, 9, 12], [6, 9], [9, 12], [9])
        assert ".cut" not in files.entries, "a copy that a crash left takes up room"
        kept = [event for each in again.read(1, 1 << 20) for event in each.events()]
        assert kept[:5] == [event for each in (frame(1), frame(4)) for event in each.events()][:5]


def test_what_a_cut_within_a_frame_keeps_can_be_read_at_each_of_its_steps(tmp_path: Path) -> None:
    log, files = opened(tmp_path, 5, 1 << 20)
    seen: list[list[int]] = []
    files.look = lambda: seen.append([each.first for each in NodeLog(tmp_path).frames(10, 11)])
    log.truncate(11, Position(1, 11))
    files.look = nothing
    assert len(seen) > 5 and seen == [[10]] * len(seen)
    log.append([frame(12, generation=2)])
    assert [(each.first, each.last) for each in log.read(10, 1 << 20)] == [(10, 11), (12, 14)]


def test_a_cut_within_a_frame_of_a_long_segment(tmp_path: Path) -> None:
    """It is copied piece by piece."""
    log, _ = open_log(tmp_path / "log", 1 << 30)
    before = [frame(1 + 3 * number, size=REWRITE_BYTES // 4) for number in range(5)]
    log.append(before)
    log.truncate(11, Position(1, 11))
    log.close()
    log, found = open_log(tmp_path / "log")
    assert found == [*before[:3], before[3].part(10, 11)]


def test_a_cut_within_a_frame_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    for fails in (1, 2, 3):
        directory = tmp_path / str(fails) / "log"
        directory.parent.mkdir()
        filled(directory, 3, 1 << 20)
        files = FailingFiles()
        log, before = open_log(directory, files=files)
        files.writes = fails
        with suppress(StoreError):
            log.truncate(5, Position(1, 5))
        log.close()
        assert open_log(directory)[1] == (before if fails < 3 else [before[0], before[1].part(4, 5)])


@pytest.mark.parametrize("first", WITHIN)
def test_what_is_read_from_within_a_frame_is_the_rest_of_it(tmp_path: Path, first: int) -> None:
    """``a_store_that_ends_within_a_frame``: who has its first events could otherwise never go on."""
    filled(tmp_path / "log", 9, segment_bytes=300)
    log, found = open_log(tmp_path / "log", 300)
    events = [event for each in found for event in each.events()]
    behind = log.read(first, 1 << 20)
    assert behind[0].first == first and behind[-1].last == 27
    assert [event for each in behind for event in each.events()] == events[first - 1 :]
    assert behind[1:] == [each for each in found if each.first > first], "the same bytes"
    assert [each.first for each in log.read(first, 1)] == [first]
