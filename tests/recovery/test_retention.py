"""When segments of the log are old enough to be removed, whatever the wall clock does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import recovery.store as store_module
from recovery.retention import NEVER, SLACK, Retention
from recovery.segment import segment_firsts
from recovery.store import StoreSettings
from tests.recovery.helpers import Posts, frame
from txobserver.ids import Position
from txobserver.store import Checkpoint, Meta

HOUR = 3600.0
DAY = 24 * HOUR
START = 1_700_000_000.0


class Clocks:
    """A wall clock that can be set, and one that only counts."""

    def __init__(self, last_written: float | None = None, seconds: float = HOUR) -> None:
        self.wall, self.counted = START, 50.0
        self.retention = Retention(seconds, lambda: self.wall, lambda: self.counted, last_written)

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


def test_a_store_keeps_its_segments_when_the_clock_jumps(tmp_path: Path) -> None:
    posts, wall = Posts(), [START]

    def opened() -> Any:
        settings = StoreSettings(retention_seconds=HOUR, segment_bytes=4096)
        return store_module.open_store(
            tmp_path / "n",
            cluster="c",
            node="n",
            settings=settings,
            post=posts.queue.put,
            new_incarnation=lambda: "i",
            now_ms=lambda: int(wall[0] * 1000),
        )

    def checkpoint(store: Any, last: int) -> int:
        store.checkpoint(Checkpoint(Meta(applied=Position(1, last)), {}, [], [], []), posts.done)
        assert posts.wait() == [None]
        return len(segment_firsts(tmp_path / "n" / "log"))

    store, last = opened(), 0
    while len(segment_firsts(tmp_path / "n" / "log")) < 4:
        each = frame(last + 1)
        store.append(each, posts.done)
        assert posts.wait() == [None]
        last = each.last
    for path in (tmp_path / "n" / "log").iterdir():
        os.utime(path, (START, START))
    wall[0] += 3 * DAY
    assert checkpoint(store, last) == 4
    assert checkpoint(store, last) == 4
    store.close()
    store = opened()
    assert checkpoint(store, last) == 4, "nor when it starts with such a clock"
    store.close()
    os.utime(max((tmp_path / "n" / "log").iterdir()), (wall[0], wall[0]))
    store = opened()
    assert checkpoint(store, last) == 1, "but the end of the log was written by that clock"
    store.close()


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
