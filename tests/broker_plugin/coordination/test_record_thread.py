"""The coordination store's thread: each answer comes once, and no call keeps a node from its end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from broker_plugin.coordination.record_thread import STOP_SECONDS, RecordThread
from broker_plugin.guard import Guard
from ha.membership.record import (
    UNSEEN,
    CasConflict,
    CoordinationError,
    MemoryCoordination,
    Record,
    Snapshot,
    Waiter,
)
from tests.support.guards import strict_guard

RECORD = Record("c", 1, 1, None, ())


class Unreachable(MemoryCoordination):
    """Fails to make any change."""

    def compare_and_set(self, expected: int, record: Record) -> Record:
        raise CoordinationError("no answer in time")


async def test_a_change_that_fails_does_not_end_the_node() -> None:
    """Asyncio complains of an error that was not looked at, when garbage is collected; the guard ends the node."""
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

    def waiter(self) -> Waiter:
        return threading.Event()

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
    """The record is read, and a renewal made, before the loop comes to either; the waiting call gets both, in order.

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
    """Asyncio complains of an error that was not looked at, when garbage is collected."""
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
    store: Any = Unreachable()
    store.give_up = lambda: given_up.append(calls.stopped)
    RecordThread(store, strict_guard(), calls).stop()
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


# -- watching


def watching(told: list[Record | None], every: float = 600.0) -> tuple[RecordThread, ByHand]:
    calls = ByHand()
    records = RecordThread(Unreachable(), strict_guard(), calls)
    records.watch(told.append, every)
    return records, calls


def errors(records: RecordThread) -> list[Exception]:
    """What has come up where no code handles it."""
    guard: Any = records._guard
    return guard.errors  # type: ignore[no-any-return]


def waits(records: RecordThread) -> Waiter:
    """What the watch that is under way waits on."""
    assert records._waiter is not None
    return records._waiter


async def test_each_reading_of_a_watch_is_told_and_the_next_one_waits_behind_it() -> None:
    told = list[Record | None]()
    _, calls = watching(told)
    asked: list[tuple[Any, ...]] = []
    calls.submit = lambda call, *arguments: asked.append(arguments) or ByHand.submit(calls, call)  # type: ignore[method-assign,func-returns-value]
    for number, found in enumerate((Snapshot(1, RECORD), Snapshot(1, RECORD), Snapshot(0, None)), 1):
        assert len(calls.futures) == number, "one at a time"
        calls.futures[-1].set_result(found)
        await settled()
        assert [each[:2] for each in asked] == [(1, 600.0), (1, 600.0), (0, 600.0)][:number]
    assert told == [RECORD, RECORD, None]


async def test_a_watch_gives_way_to_every_other_call_and_goes_on_behind_it() -> None:
    """A change would wait for as long as the record stands."""
    told = list[Record | None]()
    records, calls = watching(told)
    for number, other in enumerate(
        (
            lambda: records.compare_and_set(1, RECORD, told.append, told.append, lambda: None),
            lambda: records.read(told.append),
        )
    ):
        first = waits(records)
        assert not first.is_set()
        other()  # type: ignore[no-untyped-call]
        assert first.is_set() and len(calls.futures) == 2 * number + 2
        calls.futures[-2].set_result(None)
        await settled()
        assert len(told) == number and len(calls.futures) == 2 * number + 3 and not waits(records).is_set()
        calls.futures[-2].set_result(RECORD)
        await settled()
        assert told == [RECORD] * (number + 1)


async def test_who_rests_is_told_nothing_and_may_watch_again() -> None:
    told = list[Record | None]()
    records, calls = watching(told)
    first = waits(records)
    records.rest()
    assert first.is_set()
    records.rest()
    calls.futures[0].set_result(Snapshot(1, RECORD))  # it had been read already
    await settled()
    assert told == [] and len(calls.futures) == 1 and not errors(records)
    records.watch(told.append, 600.0)
    calls.futures[1].set_result(Snapshot(1, RECORD))
    await settled()
    assert told == [RECORD]


async def test_who_rests_and_watches_before_the_thread_has_heard_of_it() -> None:
    told = list[Record | None]()
    records, calls = watching(told)
    records.rest()
    records.watch(told.append, 600.0)
    assert len(calls.futures) == 1
    calls.futures[0].set_result(None)
    await settled()
    assert told == [] and len(calls.futures) == 2 and not waits(records).is_set()


async def test_a_watch_that_fails_is_complained_of_and_goes_on() -> None:
    told = list[Record | None]()
    records, calls = watching(told, 0.0)
    calls.futures[0].set_exception(CoordinationError("it hangs"))
    await settled()
    assert records.complaint == "it hangs"
    while len(calls.futures) < 2:
        await asyncio.sleep(0.001)
    calls.futures[1].set_result(Snapshot(1, RECORD))
    await settled()
    assert told == [RECORD] and records.complaint == ""


async def test_who_watches_again_is_told_what_there_is_at_once() -> None:
    """A node that leads no more: what it saw before it led is not waited for to change."""
    told = list[Record | None]()
    records, calls = watching(told)
    calls.futures[0].set_result(Snapshot(7, RECORD))
    await settled()
    records.rest()
    calls.futures[1].set_result(None)
    await settled()
    asked: list[tuple[Any, ...]] = []
    calls.submit = lambda call, *arguments: asked.append(arguments) or ByHand.submit(calls, call)  # type: ignore[method-assign,func-returns-value]
    records.watch(told.append, 600.0)
    assert [each[:2] for each in asked] == [(UNSEEN, 600.0)]


@pytest.mark.parametrize(("took", "rest"), [(0.25, 0.75), (5.0, 0.0)])
async def test_after_one_that_fails_the_next_reading_comes_when_it_would_have_come(
    took: float, rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``every`` seconds after the failed one was asked for; at once if it took longer."""
    clock, waited = [1000.0], list[float]()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock[0])
    records, calls = watching([], 1.0)
    monkeypatch.setattr(records._guard, "call_later", lambda seconds, call: waited.append(seconds))
    clock[0] += took
    calls.futures[0].set_exception(CoordinationError("it hangs"))
    await settled()
    assert waited == [rest]


async def test_a_watch_keeps_no_node_from_its_end() -> None:
    """In a real thread, which waits for a change that never comes; nothing follows it."""
    told = list[Record | None]()
    records = RecordThread(MemoryCoordination(), strict_guard())
    records.watch(told.append, 600.0)
    while told != [None]:
        await asyncio.sleep(0.001)
    records.stop()
    await settled()
    assert told == [None] and not errors(records)


async def test_a_change_is_told_to_a_watch_of_another_node() -> None:
    store, told = MemoryCoordination(), list[Record | None]()
    ours, theirs = (RecordThread(store, strict_guard()) for _ in range(2))
    ours.watch(told.append, 600.0)
    while told != [None]:
        await asyncio.sleep(0.001)
    theirs.compare_and_set(0, RECORD, lambda stored: None, lambda current: None, lambda: None)
    while len(told) < 2:
        await asyncio.sleep(0.001)
    assert told[1] == store.record
    ours.stop()
    theirs.stop()
