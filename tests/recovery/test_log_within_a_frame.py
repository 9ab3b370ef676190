"""A log is read, or cut, from within a frame: another node's log may end there."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.log import Log
from tests.recovery.helpers import describe, frame, open_log
from tests.recovery.test_log import filled
from tests.simulation.fake_files import Crashed, FakeFiles
from txobserver.ids import Position

WITHIN = [1, 2, 4, 5, 7, 13, 26]


@pytest.mark.parametrize("segment_bytes", [300, 1, 1 << 20])
@pytest.mark.parametrize("last", WITHIN)
def test_a_cut_within_a_frame_keeps_its_first_events(tmp_path: Path, last: int, segment_bytes: int) -> None:
    """Whoever is told that the log holds what is up to there counts on it, also after a restart."""
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
            assert last == 5 if done else last in (3, 5, 9, 12)


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
