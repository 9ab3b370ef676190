"""A turn that takes long is logged with what took it; the processor's time is what the test says."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from broker_plugin.guard import Guard
from broker_plugin.logs.events import LongTurn
from broker_plugin.logs.formats import EventMessage
from broker_plugin.turn_monitor import LONG_SECONDS, LOOK_SECONDS, TurnMonitor
from tests.support.guards import strict_guard


class Processor:
    """Its time passes when it is spent. ``passed``: the time that has passed, also without it."""

    def __init__(self) -> None:
        self.now = self.passed = 0.0
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.passed += seconds

    def wait(self, seconds: float) -> None:
        self.passed += seconds


def watched() -> tuple[Guard, Processor]:
    processor, guard = Processor(), strict_guard()
    guard.monitor = TurnMonitor(guard.call_soon, processor, lambda: processor.passed)
    return guard, processor


def logged(caplog: pytest.LogCaptureFixture) -> list[LongTurn]:
    found = [each.msg.event for each in caplog.records if isinstance(each.msg, EventMessage)]
    return [event for event in found if isinstance(event, LongTurn)]


async def test_a_long_turn_is_logged_with_its_longest_call(caplog: pytest.LogCaptureFixture) -> None:
    guard, processor = watched()
    caplog.set_level(logging.INFO)
    guard.run(processor.work, 0.125)
    guard.run(partial(processor.work, 0.5))
    assert guard.monitor is not None
    guard.monitor.client = "127.0.0.1:1"
    guard.run(lambda: guard.run(processor.work, 0.25))
    await asyncio.sleep(0)
    (event,) = logged(caplog)
    assert event == LongTurn(0.875, "Processor.work", 0.5, "127.0.0.1:1")


async def test_turns_that_are_short_are_not_added_up(caplog: pytest.LogCaptureFixture) -> None:
    guard, processor = watched()
    for _ in range(10):
        guard.run(processor.work, LONG_SECONDS * 0.9)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not logged(caplog)


async def test_what_other_turns_spend_on_what_nothing_guards_is_not_added_up(caplog: pytest.LogCaptureFixture) -> None:
    """``guessed-tokens``: of 100,000 conversations with the administration turns of a second were told."""
    guard, processor = watched()
    for _ in range(200):
        processor.work(0.02)  # of the administration
        guard.run(processor.work, 0.001)
        await asyncio.sleep(0)
    assert not logged(caplog)
    for _ in range(100):
        guard.run(processor.work, 0.001)
    await asyncio.sleep(0)
    assert [round(event.seconds, 3) for event in logged(caplog)] == [0.101], "and what is guarded still is"


async def test_what_the_loop_calls_later_is_measured_too(caplog: pytest.LogCaptureFixture) -> None:
    guard, processor = watched()
    guard.call_soon(partial(processor.work, 1.0))
    for _ in range(3):
        await asyncio.sleep(0)
    assert [event.call for event in logged(caplog)] == ["Processor.work"]


async def test_a_turn_that_waits_for_a_processor_is_not_long(caplog: pytest.LogCaptureFixture) -> None:
    guard, processor = watched()
    guard.run(processor.wait, 1.0)
    await asyncio.sleep(0)
    assert not logged(caplog)


async def test_the_system_is_asked_once_for_a_turn_however_much_is_called_in_it() -> None:
    """Asked at each call, it took a fifth of a primary's processor time."""
    guard, processor = watched()
    guard.run(processor.work, 0.0)
    before = processor.asked
    for _ in range(100):
        guard.run(processor.work, 0.02)
    await asyncio.sleep(0)
    assert processor.asked == before + 1


async def test_turns_in_which_little_is_called_cost_no_turn_of_the_loop() -> None:
    processor, guard, told = Processor(), strict_guard(), list[object]()
    guard.monitor = TurnMonitor(told.append, processor, lambda: processor.passed)
    for _ in range(10):
        guard.run(processor.work, LOOK_SECONDS / 11)
    assert not told
    guard.run(processor.work, LOOK_SECONDS)
    guard.run(processor.work, LOOK_SECONDS)
    assert len(told) == 1
