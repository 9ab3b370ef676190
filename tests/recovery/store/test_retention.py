"""When segments of the log are old enough to be removed, whatever the wall clock does."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recovery.store.store as store_module
from recovery.store.retention import NEVER, NOTE, SLACK, Retention, retention_of
from recovery.store.segment import segment_firsts, segment_path
from recovery.store.store import StoreSettings
from tests.simulation.fake_files import FakeFile, FakeFiles
from tests.support.logs import Posts, frame
from txobserver.ids import Position
from txobserver.ports.store import Checkpoint, Meta, StoreError

HOUR = 3600.0
DAY = 24 * HOUR
START = 1_700_000_000.0


class Clocks:
    """A wall clock that can be set, and one that only counts."""

    def __init__(self, last_written: float | None = None, seconds: float = HOUR) -> None:
        self.wall, self.counted = START, 50.0
        self.noted = NEVER
        self.notes = 0
        self.start(last_written, seconds)

    def start(self, last_written: float | None = None, seconds: float = HOUR) -> None:
        """The node starts; of the time before, only what was noted is known."""

        def note(until: float) -> None:
            self.noted = until
            self.notes += 1

        self.retention = Retention(seconds, lambda: self.wall, lambda: self.counted, last_written, self.noted, note)

    def after(self, seconds: float, jump: float = 0.0) -> float:
        """What may be removed when this much time has passed, and the wall clock was set by ``jump``."""
        self.wall += seconds + jump
        self.counted += seconds
        return self.retention.removable_before()


def test_without_a_jump() -> None:
    clocks = Clocks(last_written=START - 5)
    assert clocks.after(10) == START + 10 - HOUR
    assert clocks.after(10 * DAY) == START + 10 + 10 * DAY - HOUR


def test_a_jump_ahead_removes_nothing_for_as_long_as_segments_are_kept() -> None:
    """One jump by days would take the whole log from readers, at the next checkpoint."""
    clocks = Clocks()
    assert clocks.after(5, jump=3 * DAY) == NEVER
    assert [clocks.after(HOUR / 4) for _ in range(3)] == [NEVER] * 3
    assert clocks.after(HOUR / 4) == START + 5 + 3 * DAY, "then as before"


def test_a_clock_that_jumps_all_the_time_does_not_keep_the_log_for_ever() -> None:
    clocks = Clocks()
    removed = [clocks.after(HOUR / 2, jump=DAY) != NEVER for _ in range(12)]
    assert any(removed)


def test_a_jump_while_nothing_is_removed_does_not_prolong_that() -> None:
    """The log grows by one more retention at most."""
    clocks = Clocks()
    assert clocks.after(5, jump=3 * DAY) == clocks.after(HOUR / 2, jump=3 * DAY) == NEVER
    assert clocks.after(HOUR / 2) == START + 5 + 6 * DAY
    assert clocks.after(1) == START + 6 + 6 * DAY


def test_a_jump_as_the_hold_ends() -> None:
    """Between the looks of an idle node: what it then writes would be removed at once."""
    clocks = Clocks(last_written=START - DAY)
    assert clocks.after(HOUR - 1) == NEVER
    assert clocks.after(2, jump=DAY) == NEVER and clocks.noted == clocks.wall + HOUR
    assert clocks.after(HOUR - 1) == NEVER and clocks.after(1) == clocks.wall - HOUR


@pytest.mark.parametrize("every", [HOUR / 3, HOUR, 2 * HOUR])
def test_a_clock_that_jumps_between_all_looks_fills_no_disk(every: float) -> None:
    clocks = Clocks()
    removed = [clocks.after(every, jump=DAY) != NEVER for _ in range(40)]
    assert removed.count(True) > 5


@pytest.mark.parametrize("jump", [-3 * DAY, -30.0, 30.0])
def test_a_jump_back_or_a_small_one_is_followed(jump: float) -> None:
    clocks = Clocks()
    assert clocks.after(5, jump=jump) == START + 5 + jump - HOUR


def test_a_log_that_was_last_written_long_ago_is_kept_for_a_while_after_the_start() -> None:
    clocks = Clocks(last_written=START - DAY)
    assert clocks.after(HOUR - 1) == NEVER and clocks.after(1) == START


def test_no_retention_is_none() -> None:
    clocks = Clocks(seconds=0.0)
    assert clocks.after(5, jump=DAY) == START + 5 + DAY


def test_a_start_goes_on_with_what_an_earlier_one_held() -> None:
    """Whatever was written since: that start itself made the end of the log new."""
    clocks = Clocks(last_written=START - DAY)
    assert clocks.noted == START + HOUR
    assert clocks.after(HOUR / 4) == NEVER
    clocks.start(last_written=clocks.wall)
    assert clocks.after(HOUR / 2) == NEVER
    clocks.start(last_written=clocks.wall)
    assert clocks.after(HOUR / 4 - 1) == NEVER and clocks.after(1) == START, "and no longer than that, however often"
    clocks.start(last_written=clocks.wall)
    assert clocks.after(0.0) == START and clocks.notes == 1


@pytest.mark.parametrize("early", [0.0, DAY])
def test_what_is_held_since_a_jump_is_held_by_the_next_process_too(early: float) -> None:
    """Also when the clock jumps once more meanwhile."""
    clocks = Clocks()
    assert clocks.after(5, jump=3 * DAY) == NEVER
    assert clocks.after(HOUR / 2, jump=early) == NEVER
    clocks.start(last_written=clocks.wall)
    assert clocks.after(HOUR / 2 - 1) == NEVER and clocks.after(1) == clocks.wall - HOUR


def test_a_note_of_a_clock_that_was_ahead_holds_for_one_retention() -> None:
    clocks = Clocks()
    clocks.noted = START + 3 * DAY
    clocks.start(last_written=START)
    assert clocks.noted == START + HOUR and clocks.after(HOUR / 2) == NEVER
    clocks.start(last_written=START)
    assert clocks.after(HOUR / 2 - 1) == NEVER and clocks.after(1) == START


def test_no_retention_notes_nothing() -> None:
    clocks = Clocks(START - DAY, 0.0)
    assert clocks.after(5, jump=DAY) == clocks.wall and not clocks.notes


class Directory:
    """A store in a directory, opened again and again. ``wall``: seconds since 1970, as its node sees them."""

    def __init__(self, directory: Path, wall: float) -> None:
        self.directory, self.wall, self.posts, self.last = directory, wall, Posts(), 0

    def opened(self) -> Any:
        """It starts as a node does: what is behind its checkpoint is read, and the end of its log written again."""
        store = store_module.open_store(
            self.directory,
            cluster="c",
            node="n",
            settings=StoreSettings(retention_seconds=HOUR, segment_bytes=4096),
            post=self.posts.queue.put,
            new_incarnation=lambda: "i",
            now_ms=lambda: int(self.wall * 1000),
        )
        list(store.suffix())
        return store

    def write(self, store: Any, segments: int) -> None:
        """Until there are so many segments."""
        while len(self.segments()) < segments:
            each = frame(self.last + 1)
            store.append(each, self.posts.done)
            assert self.posts.wait() == [None]
            self.last = each.last

    def checkpoint(self, store: Any) -> int:
        """Returns how many segments it leaves."""
        store.checkpoint(Checkpoint(Meta(applied=Position(1, self.last)), {}, [], [], []), self.posts.done)
        assert self.posts.wait() == [None]
        return len(self.segments())

    def segments(self) -> list[Path]:
        return [segment_path(self.directory / "log", first) for first in segment_firsts(self.directory / "log")]

    def aged(self, seconds: float) -> None:
        for path in self.segments():
            os.utime(path, (self.wall - seconds, self.wall - seconds))


def test_a_store_keeps_its_segments_when_the_clock_jumps(tmp_path: Path) -> None:
    node = Directory(tmp_path / "n", START)
    store = node.opened()
    node.write(store, 4)
    node.aged(0)
    node.wall += 3 * DAY
    assert node.checkpoint(store) == 4
    assert node.checkpoint(store) == 4
    store.close()
    store = node.opened()
    assert node.checkpoint(store) == 4, "nor when it starts with such a clock"
    store.close()
    os.utime(node.segments()[-1], (node.wall, node.wall))
    store = node.opened()
    assert node.checkpoint(store) == 4, "nor when the end of the log was written by that clock"
    store.close()
    node.wall += HOUR
    os.utime(node.segments()[-1], (node.wall, node.wall))
    store = node.opened()
    assert node.checkpoint(store) == 1, "but then as before"
    store.close()


def nothing(node: Directory, store: Any) -> None:
    """The start alone makes the end of the log new."""


@pytest.mark.parametrize("meanwhile", [nothing, lambda node, store: node.write(store, 5)])
def test_a_second_start_takes_the_readers_time(tmp_path: Path, meanwhile: Callable[[Directory, Any], None]) -> None:
    """A node that was down for two hours starts, and starts again: readers still have an hour from the first start."""
    node = Directory(tmp_path / "n", time.time())
    store = node.opened()
    node.write(store, 4)
    store.close()
    node.aged(2 * HOUR)
    store = node.opened()
    meanwhile(node, store)
    store.close()
    assert node.segments()[-1].stat().st_mtime > node.wall - HOUR
    count = len(node.segments())
    for _ in range(2):
        store = node.opened()
        assert node.checkpoint(store) == count
        store.close()
    node.wall += HOUR + 1
    os.utime(node.segments()[-1], (node.wall, node.wall))
    store = node.opened()
    assert node.checkpoint(store) == 1
    store.close()


def test_a_note_is_replaced_and_one_that_cannot_be_made_is_said() -> None:
    files, clocks = FakeFiles(lambda: START), [START, 0.0]
    files.entries[segment_path(Path("log"), 1).name] = FakeFile(modified=START - DAY)

    def held() -> Retention:
        return retention_of(Path("log"), HOUR, lambda: clocks[0], lambda: clocks[1], files)

    def notes() -> list[str]:
        return [name for name in files.entries if name.startswith(NOTE)]

    retention = held()
    assert notes() == [f"{NOTE}{START + HOUR:.0f}"]
    clocks[0] += DAY
    assert retention.removable_before() == NEVER and notes() == [f"{NOTE}{START + DAY + HOUR:.0f}"]
    files.crash(random.Random(1))
    assert len(notes()) == 2, "the crash brought the one before back"
    retention = held()
    assert retention.removable_before() == NEVER
    clocks[0] += DAY
    assert retention.removable_before() == NEVER and notes() == [f"{NOTE}{START + 2 * DAY + HOUR:.0f}"]
    files.full = True
    clocks[0] += DAY
    with pytest.raises(StoreError, match="no space is left"):
        retention.removable_before()
    with pytest.raises(StoreError, match="no space is left"):
        held()


@pytest.mark.parametrize(("seconds", "longest"), [(HOUR, HOUR), (1.0, SLACK), (0.0, SLACK)])
def test_just_as_long_ago_as_it_is_kept_is_not_long_ago(seconds: float, longest: float) -> None:
    assert Clocks(START - longest, seconds).after(0.0) == START - seconds
    assert (Clocks(START - longest - 1, seconds).after(0.0) == NEVER) == (seconds > 0)


def test_a_jump_is_more_than_the_slack() -> None:
    assert Clocks().after(5, jump=SLACK) == START + 5 + SLACK - HOUR
    assert Clocks().after(5, jump=SLACK + 1) == NEVER


def test_a_store_removes_old_segments_by_the_wall_clock_that_it_is_given(tmp_path: Path) -> None:
    posts = Posts()
    store: Any = store_module.open_store(
        tmp_path / "n",
        cluster="c",
        node="n",
        settings=StoreSettings(retention_seconds=HOUR, segment_bytes=4096),
        post=posts.queue.put,
        new_incarnation=lambda: "i",
        now_ms=lambda: int(START * 1000),
    )
    last = 0
    while len(segment_firsts(tmp_path / "n" / "log")) < 4:
        each = frame(last + 1)
        store.append(each, posts.done)
        assert posts.wait() == [None]
        last = each.last
    paths = sorted((tmp_path / "n" / "log").iterdir())
    for path, age in zip(paths, (HOUR + 1, HOUR - 1, 0, 0), strict=True):
        os.utime(path, (START - age, START - age))
    store.checkpoint(Checkpoint(Meta(applied=Position(1, last)), {}, [], [], []), posts.done)
    assert posts.wait() == [None]
    assert sorted((tmp_path / "n" / "log").iterdir()) == paths[1:]
    store.close()
