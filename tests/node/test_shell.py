"""The shell's own rules; what it does with a whole node is tested with real processes."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_plugin.node.shell import Shell


class BrokenCore:
    """Fails when it settles."""

    keeper = object()
    settled = 0
    asleep = False

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


async def test_an_error_in_the_core_stops_the_node_at_once() -> None:
    reasons: list[str] = []
    core: Any = BrokenCore()
    nothing: Any = None
    shell = Shell(core, nothing, nothing, 0.2, reasons.append)
    shell.report(lambda: None)
    await asyncio.sleep(0.01)
    shell.report(lambda: None)
    shell.due()
    await asyncio.sleep(0.01)
    assert len(reasons) == 1 and "an error in the core" in reasons[0]
    assert core.settled == 1, "nothing is settled from a wrong state"


async def test_many_reports_make_one_turn() -> None:
    core: Any = BrokenCore()
    turns: list[int] = []
    core.settle = lambda: turns.append(1)
    nothing: Any = None
    shell = Shell(core, nothing, nothing, 0.2, lambda reason: None)
    for _ in range(50):
        shell.report(lambda: None)
    await asyncio.sleep(0.01)
    assert turns == [1]


async def test_who_has_overslept_settles_that_before_it_takes_anything() -> None:
    core: Any = BrokenCore()
    turns: list[int] = []
    core.settle = lambda: turns.append(1)
    nothing: Any = None
    shell = Shell(core, nothing, nothing, 0.2, lambda reason: None)
    shell.look_at_clock()
    await asyncio.sleep(0.01)
    assert not turns, "nothing has changed"
    core.asleep = True
    shell.look_at_clock()
    assert not core.asleep
    await asyncio.sleep(0.01)
    assert turns == [1]
