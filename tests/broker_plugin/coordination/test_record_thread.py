"""The coordination store's thread: each answer comes once, and no call keeps a node from its end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from broker_plugin.coordination.record_thread import STOP_SECONDS, RecordThread
from broker_plugin.guard import Guard
from ha.membership.record import CasConflict, CoordinationError, MemoryCoordination, Record
from tests.support.guards import strict_guard

RECORD = Record("c", 1, 1, None, ())


class Unreachable(MemoryCoordination):
    """Fails to make any change."""

    def compare_and_set(self, expected: int, record: Record) -> Record:
        raise CoordinationError("no answer in time")

    def close(self) -> None:
        """Nothing is held."""


async def test_a_change_that_fails_does_not_end_the_node() -> None:
    """Asyncio complains of an error that nobody has looked at, when garbage is collected; the guard ends the node."""
    ended: list[str] = []
    guard = Guard(ended.append, ended.append)
    guard.watch()
    records = RecordThread(Unreachable(), guard)
    failed = asyncio.Event()
    records.compare_and_set(0, RECORD, lambda stored: None, lambda current: None, failed.set)
    await failed.wait()
    await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    records.stop()
    assert not ended and not guard.broken


class ByHand:
    """Calls that are answered when the test says so, or when they are waited for."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends
        self.futures: list[Future[Any]] = []
        self.stopped = False
        self.waited: list[float] = []

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]

    def wait(self, futures: Collection[Future[Any]], seconds: float) -> None:
        self.waited.append(seconds)
        for each in futures if self.ends else ():
            each.set_result(None)

    def shutdown(self, wait: bool = True) -> None:
        self.stopped = True


async def settled() -> None:
    """The loop has done what it can do by itself."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_change_is_answered_once_though_it_was_waited_for() -> None:
    """The loop learns of it as well, later."""
    calls, told = ByHand(), list[Record | None]()
    records = RecordThread(Unreachable(), strict_guard(), calls)
    records.compare_and_set(0, RECORD, told.append, told.append, lambda: told.append(None))
    records.wait(1.0)
    assert told == []
    calls.futures[0].set_result(RECORD)
    records.wait(1.0)
    await settled()
    assert told == [RECORD]


async def test_read_before_a_change_and_told_behind_it() -> None:
    """The record is read, and a renewal made, before the loop comes to either; who waits is told of both, in order.

    The node would take what was read for a record that went back, and wait for an operator (simulated seed 44619).
    """
    calls, told = ByHand(), list[Record | None]()
    records = RecordThread(Unreachable(), strict_guard(), calls)
    records.read(told.append)
    records.compare_and_set(1, replace(RECORD, version=2), told.append, told.append, lambda: told.append(None))
    records.read(lambda record: pytest.fail("one reading is on its way at any time"))
    for version, future in enumerate(calls.futures, 1):
        future.set_result(replace(RECORD, version=version))
    records.wait(1.0)
    assert told == [RECORD, replace(RECORD, version=2)]
    await settled()
    assert len(told) == 2, "the loop comes to both once more"


async def test_who_waits_while_he_is_told_something_is_told_the_rest_afterwards() -> None:
    """A step of the clock that is seen in the middle of an answer asks for the next one."""
    calls, told = ByHand(), list[str]()
    records = RecordThread(Unreachable(), strict_guard(), calls)

    def waits(record: Record | None) -> None:
        records.wait(1.0)
        told.append("read")

    records.read(waits)
    records.compare_and_set(0, RECORD, lambda record: told.append("stored"), lambda record: None, lambda: None)
    for future in calls.futures:
        future.set_result(RECORD)
    await settled()
    assert told == ["read", "stored"]


async def test_a_reading_that_failed_before_a_change_does_not_end_the_node() -> None:
    """Asyncio complains of an error that nobody has looked at, when garbage is collected."""
    ended: list[str] = []
    guard = Guard(ended.append, ended.append)
    guard.watch()
    calls, told = ByHand(), list[Record | None]()
    records = RecordThread(Unreachable(), guard, calls)
    records.read(told.append)
    records.compare_and_set(0, RECORD, told.append, told.append, lambda: told.append(None))
    calls.futures[0].set_exception(CoordinationError("database is locked"))
    calls.futures[1].set_result(RECORD)
    records.wait(1.0)
    await settled()
    del calls.futures[:]
    gc.collect()
    await settled()
    assert told == [RECORD] and not ended and not guard.broken


async def test_a_reading_that_failed_is_followed_by_another() -> None:
    """Only one is on its way at any time."""
    calls, told = ByHand(), list[Record | None]()
    records = RecordThread(Unreachable(), strict_guard(), calls)
    for _ in range(2):
        records.read(told.append)
    (first,) = calls.futures
    first.set_exception(CoordinationError("no answer in time"))
    await settled()
    assert told == []
    records.read(told.append)
    calls.futures[1].set_result(RECORD)
    await settled()
    assert told == [RECORD]


@pytest.mark.parametrize("ends", [False, True])
async def test_a_call_that_does_not_end_in_time_is_given_up_at_the_end(ends: bool) -> None:
    """Before it is waited for without a bound."""
    calls, given_up = ByHand(ends), list[bool]()
    RecordThread(Unreachable(), strict_guard(), calls, lambda: given_up.append(calls.stopped)).stop()
    assert calls.stopped and given_up == ([] if ends else [False])
    assert calls.waited == [STOP_SECONDS] and STOP_SECONDS <= 1.0, "`txha cluster` kills a node after 5 seconds"


async def test_what_the_last_answer_failed_with_is_known_until_one_does_not() -> None:
    """``txha status`` says it; a record of another version is an answer like any other."""
    calls = ByHand()
    records = RecordThread(Unreachable(), strict_guard(), calls)
    for answer in (None, CasConflict(None)):
        records.read(lambda record: None)
        calls.futures[-1].set_exception(CoordinationError("the record is damaged"))
        await settled()
        assert records.complaint == "the record is damaged"
        if answer is None:
            records.read(lambda record: None)
            calls.futures[-1].set_result(RECORD)
        else:
            records.compare_and_set(0, RECORD, lambda stored: None, lambda current: None, lambda: None)
            calls.futures[-1].set_exception(answer)
        await settled()
        assert records.complaint == ""


async def test_what_the_store_complains_of_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    calls = ByHand()
    records = RecordThread(Unreachable(), strict_guard(), calls)
    for answer in ("it is locked", "it is locked", None, "it is locked", "it is damaged"):
        records.read(lambda record: None)
        if answer is None:
            calls.futures[-1].set_result(RECORD)
        else:
            calls.futures[-1].set_exception(CoordinationError(answer))
        await settled()
    assert [each.getMessage() for each in caplog.records] == ["it is locked", "it is locked", "it is damaged"]
