"""The shell's own rules; what it does with a whole node is tested with real processes."""

from __future__ import annotations

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.guard import Guard
from broker_plugin.node.shell import DEADLINE_SECONDS, Clocks, Shell
from ha.effects import CompareAndSet, LogLine
from ha.log_events import FollowingPrimary, RecordRefused
from ha.membership.record import MemoryCoordination
from ha.messages.election import Probe
from tests.support.guards import strict_guard


class BrokenCore:
    """Fails when it settles."""

    settled = 0
    asleep = False

    def __init__(self) -> None:
        self.leading: Any = SimpleNamespace(keeper=SimpleNamespace(expired=self.overslept))

    def overslept(self, now: float) -> bool:
        return self.asleep

    def look_at_clock(self, now: float, wall_ms: int) -> None:
        self.asleep = False

    def tick(self) -> None:
        """Nothing."""

    def settle(self) -> None:
        self.settled += 1
        raise RuntimeError("on purpose")

    def take_effects(self) -> list[Any]:
        return []


class NoRecords:
    """No change is on its way."""

    def wait(self, seconds: float) -> None:
        """Nothing."""


async def test_an_error_in_the_core_stops_the_node_at_once() -> None:
    reasons: list[str] = []
    core: Any = BrokenCore()
    nothing: Any = None
    guard = Guard(lambda reason: None, reasons.append)
    shell = Shell(core, nothing, nothing, 0.2, lambda reason: None, guard)
    shell.report(lambda: None)
    await asyncio.sleep(0.01)
    shell.report(lambda: None)
    shell.due()
    await asyncio.sleep(0.01)
    assert len(reasons) == 1 and "wrong state" in reasons[0]
    assert core.settled == 1, "nothing is settled from a wrong state"


async def test_a_line_that_asks_for_an_operator_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The terminal of ``txha cluster`` shows warnings, and of other lines the changes of state only."""
    core: Any = BrokenCore()
    core.settle, core.generation = lambda: None, 5
    lines: list[LogLine] = [LogLine(FollowingPrimary("b")), LogLine(RecordRefused("this store waits"), warning=True)]
    core.take_effects = lambda: [lines.pop(0)] if lines else []
    nothing: Any = None
    shell = Shell(core, nothing, nothing, 0.2, lambda reason: None, strict_guard())
    with caplog.at_level(logging.INFO, "txha.node"):
        for _ in range(2):
            shell.report(lambda: None)
            await asyncio.sleep(0.01)
    said = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert said == [(logging.INFO, "generation=5 following b"), (logging.WARNING, "generation=5 this store waits")]


async def test_many_reports_make_one_turn() -> None:
    core: Any = BrokenCore()
    turns: list[int] = []
    core.settle = lambda: turns.append(1)
    nothing: Any = None
    shell = Shell(core, nothing, nothing, 0.2, lambda reason: None, strict_guard())
    for _ in range(50):
        shell.report(lambda: None)
    await asyncio.sleep(0.01)
    assert turns == [1]


async def test_what_both_sides_of_a_link_know_reaches_the_core() -> None:
    """A peer that knows no feature is linked as well."""
    core: Any = BrokenCore()
    core.settle = lambda: None
    told: list[tuple[str, bool, frozenset[str]]] = []
    core.on_link = lambda *link: told.append(link)
    nothing: Any = None
    shell = Shell(core, nothing, nothing, 0.2, lambda reason: None, strict_guard())
    for features in (frozenset({"x"}), frozenset(), None):
        shell.on_link("b", features)
    await asyncio.sleep(0.01)
    assert told == [("b", True, frozenset({"x"})), ("b", True, frozenset()), ("b", False, frozenset())]


async def test_a_shell_that_was_stopped_tells_the_core_nothing_and_settles_no_more() -> None:
    """Its store is being closed: what was due is as if the node had been killed, and no answer makes it a primary."""
    core: Any = BrokenCore()
    told: list[str] = []
    core.settle, core.set_clock = lambda: told.append("settled"), lambda now, wall_ms: told.append("clock")
    nothing: Any = None
    shell = Shell(core, nothing, nothing, 0.2, lambda reason: None, strict_guard())
    shell.start()
    shell.report(lambda: told.append("before"))
    shell.stop()
    shell.answered(lambda: told.append("stored"))
    shell.report(lambda: told.append("after"))
    shell.on_message("b", Probe(1, 1))
    shell.store_failed("the disk is gone")
    shell.due()
    await asyncio.sleep(0.1)
    assert told == ["before"]


async def test_who_has_overslept_settles_that_before_it_takes_anything() -> None:
    core: Any = BrokenCore()
    turns: list[int] = []
    core.settle = lambda: turns.append(1)
    nothing: Any = None
    records: Any = NoRecords()
    shell = Shell(core, nothing, records, 0.2, lambda reason: None, strict_guard())
    shell.look_at_clock()
    await asyncio.sleep(0.01)
    assert not turns, "nothing has changed"
    core.asleep = True
    shell.look_at_clock()
    assert not core.asleep
    await asyncio.sleep(0.01)
    assert turns == [1]


async def test_a_node_watches_the_record_from_its_first_tick_on_unless_it_leads() -> None:
    """A renewal of the primary's would wait for the answer to a reading, and it makes the changes itself."""
    core: Any = BrokenCore()
    core.leading, core.tick, core.settle = None, lambda: None, lambda: None
    asked: list[object] = []
    nothing: Any = None
    records: Any = SimpleNamespace(watch=lambda *words: asked.append(words), rest=lambda: asked.append("rest"))
    shell = Shell(core, nothing, records, 0.2, lambda reason: None, strict_guard(), Clocks(lambda: 0.5, lambda: 0))
    shell.start()
    watched = (shell.interpreter.record_read, 0.2)
    assert asked == [watched]
    shell._turn()
    assert asked == [watched], "once"
    core.leading = SimpleNamespace(keeper=SimpleNamespace(expired=lambda now: False))
    for _ in range(2):
        shell._turn()
        assert asked == [watched, "rest"], "from the turn on in which it was promoted"
    core.leading = None
    shell._turn()
    assert asked == [watched, "rest", watched]
    shell.stop()


class LeasedCore(BrokenCore):
    """A primary whose lease is over, unless it hears that it was renewed."""

    asleep = True
    stepped_down = False

    def look_at_clock(self, now: float, wall_ms: int) -> None:
        self.stepped_down = self.stepped_down or self.asleep

    def set_clock(self, now: float, wall_ms: int) -> None:
        """Nothing."""

    def on_stored(self, asked: CompareAndSet, record: Any) -> None:
        self.asleep = False

    def settle(self) -> None:
        """Nothing."""


class SlowStore(MemoryCoordination):
    """Makes every change, after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def compare_and_set(self, expected: int, record: Any) -> Any:
        time.sleep(self._seconds)
        return record


@pytest.mark.parametrize(("seconds", "stays"), [(DEADLINE_SECONDS / 10, True), (DEADLINE_SECONDS * 20, False)])
async def test_a_renewal_whose_answer_was_not_read_yet_counts(seconds: float, stays: bool) -> None:
    """Two branches of 100,000 messages were committed in one turn: the lease was given up, and had been renewed."""
    core: Any = LeasedCore()
    store: Any = SlowStore(seconds)
    records = RecordThread(store, strict_guard())
    nothing: Any = None
    shell = Shell(core, nothing, records, 0.2, lambda reason: None, strict_guard())
    effect: Any = CompareAndSet(1, SimpleNamespace(released=False))  # type: ignore[arg-type]
    shell.io.compare_and_set(effect)
    shell.look_at_clock()
    assert core.stepped_down == (not stays)
    records.stop()
    await asyncio.sleep(0.01)
    assert not core.asleep, "what was stored is told in any case"
