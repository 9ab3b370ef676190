"""Watching a store that tells of changes: what is told late, twice, wrongly or never costs a look or a wait at most."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker_plugin.coordination.told_changes import UNREADABLE, ToldChanges
from ha.membership.record import UNSEEN, CoordinationError, MemoryCoordination, Record, Snapshot
from python_tests.harness.waiting import wait_until
from txobserver.ids import Member

RECORD = Record("c", 0, 1, Member("a", "1"), ())
LONG = 3600.0


class Told:
    """A store, how often it was read, and what tells of its changes."""

    def __init__(self) -> None:
        self.store = MemoryCoordination()
        self.changes = ToldChanges(self.read)
        self.readings = 0
        self.lost = False

    def read(self) -> Record | None:
        self.readings += 1
        if self.lost:
            raise CoordinationError("no answer")
        return self.store.read()

    def change(self) -> int:
        return self.store.compare_and_set(self.store.version, RECORD).version

    def watch(self, after: int, seconds: float = LONG, waiter: threading.Event | None = None) -> Snapshot | None:
        return self.changes.watch(after, seconds, waiter or threading.Event())

    def waits(self) -> bool:
        return self.changes._waiter is not None


@pytest.fixture
def told() -> Told:
    """With a record that was watched once."""
    told = Told()
    told.change()
    assert told.watch(UNSEEN) == Snapshot(1, told.store.record)
    return told


def woken(told: Told, *versions: int) -> Snapshot | None:
    """What a watch behind version 1 gives that waits when these are told."""
    with ThreadPoolExecutor(1) as thread:
        watch = thread.submit(told.watch, 1)
        wait_until(told.waits, 60.0, "the watch")
        for version in versions:
            told.changes.changed(version)
        return watch.result()


def test_what_was_told_before_the_watch_is_not_lost(told: Told) -> None:
    told.changes.changed(told.change())
    assert told.watch(1) == Snapshot(2, told.store.record) and told.readings == 2


def test_what_is_told_meanwhile_wakes_it(told: Told) -> None:
    version = told.change()
    assert woken(told, version) == Snapshot(2, told.store.record)


@pytest.mark.parametrize("told_of", [0, UNREADABLE])
def test_a_record_that_is_gone_or_cannot_be_read_is_looked_at(told: Told, told_of: int) -> None:
    told.store.record = None
    assert woken(told, told_of) == Snapshot(0, None)


def test_what_is_told_late_wakes_nothing(told: Told) -> None:
    """A version that was read already, or an earlier one."""
    assert told.watch(1, 0.0) == Snapshot(1, told.store.record)
    readings = told.readings
    for late in (1, UNSEEN):
        told.changes.changed(late)
    waiter = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        watch = thread.submit(told.watch, 1, LONG, waiter)
        wait_until(told.waits, 60.0, "the watch")
        told.changes.changed(1)
        assert not waiter.is_set()
        waiter.set()
        assert watch.result() is None
    assert told.readings == readings


def test_what_was_told_wrongly_costs_one_look_and_no_more(told: Told) -> None:
    """A version that is not there; the record was changed and put back by an operator."""
    told.changes.changed(7)
    assert told.watch(1, 0.0) == Snapshot(1, told.store.record)
    readings, waiter = told.readings, threading.Event()
    with ThreadPoolExecutor(1) as thread:
        watch = thread.submit(told.watch, 1, LONG, waiter)
        wait_until(told.waits, 60.0, "the watch")
        waiter.set()
        assert watch.result() is None and told.readings == readings


def test_a_version_that_was_not_seen_here_is_not_waited_for(told: Told) -> None:
    told.change()
    assert told.watch(7) == Snapshot(2, told.store.record)


def test_without_a_word_it_is_looked_at_when_the_time_is_up(told: Told) -> None:
    told.change()
    assert told.watch(1, 0.05) == Snapshot(2, told.store.record)


def test_a_reading_that_fails_is_an_error_and_the_next_watch_looks_at_once(told: Told) -> None:
    told.lost = True
    with pytest.raises(CoordinationError):
        told.watch(1, 0.0)
    told.lost = False
    told.change()
    assert told.watch(1) == Snapshot(2, told.store.record)
