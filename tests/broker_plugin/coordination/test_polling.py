"""A store that is looked at again and again, since it cannot tell of changes: when it is looked at, and how often."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from broker_plugin.coordination import polling
from broker_plugin.coordination.polling import Polling
from ha.membership.record import UNSEEN, CoordinationError, Record, Snapshot

LONG = 3600.0
"""Seconds: a test that waits for so long fails"""
RECORD = Record("c", 3, 1, None, ())


class Store:
    """Holds a record, and counts how often it is read."""

    def __init__(self) -> None:
        self.found: Any = RECORD
        self.read_times = 0
        self.polling = Polling(self.read)

    def read(self) -> Record | None:
        self.read_times += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found  # type: ignore[no-any-return]

    def watch(self, after: int, seconds: float) -> Snapshot | None:
        return self.polling.watch(after, seconds, threading.Event())


class Clock:
    """Goes on when a caller waits, and by a little when a caller looks at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(polling.time, "monotonic", self.look)
        monkeypatch.setattr(threading.Event, "wait", lambda event, timeout: self.wait(event, timeout))

    def look(self) -> float:
        self.now += 0.0001
        return self.now

    def wait(self, event: threading.Event, timeout: float) -> bool:
        self.now += timeout
        return event.is_set()


def test_one_watch_after_the_other_costs_one_reading_each(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = Store(), Clock(monkeypatch)
    for number in range(1, 9):
        assert store.watch(UNSEEN if number == 1 else 3, 0.2) == Snapshot(3, RECORD)
        assert store.read_times == number
        clock.now += 0.001  # what the caller needs to ask again


def test_a_store_that_nobody_has_looked_at_lately_is_looked_at_at_once_and_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = Store(), Clock(monkeypatch)
    store.watch(UNSEEN, 0.2)
    clock.now += 60.0
    began = clock.now
    assert store.watch(3, 0.2) == Snapshot(3, RECORD)
    assert store.read_times == 3 and clock.now == pytest.approx(began + 0.2)
    assert store.watch(3, 1.0) == Snapshot(3, RECORD)
    assert store.read_times == 8, "a longer wait has as many looks as it lasts"


def test_who_is_behind_another_version_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", LONG)
    store = Store()
    for after in (UNSEEN, 2, 4, UNSEEN):
        assert store.watch(after, LONG) == Snapshot(3, RECORD)
    store.found = None
    assert store.watch(0, 0.0) == Snapshot(0, None), "what was seen may be of another time"


def test_a_reading_that_fails_is_told_and_nothing_of_it_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", LONG)
    store = Store()
    store.watch(UNSEEN, LONG)
    store.found = CoordinationError("locked")
    with pytest.raises(CoordinationError, match="locked"):
        store.watch(2, LONG)
    store.found = msgspec.structs.replace(RECORD, version=4)
    assert store.watch(3, LONG) == Snapshot(4, store.found), "it is looked at again at once"
