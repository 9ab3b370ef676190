"""A node's loop shows its turns to the watchdog while it leads, and judges its lease by what was renewed meanwhile."""

from __future__ import annotations

import asyncio
import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.logs.events import RenewedMeanwhile
from broker_plugin.logs.formats import EventMessage
from broker_plugin.node.loop_watch import SHOWN_SECONDS, LoopWatch
from broker_plugin.node.shell import Clocks, Shell
from ha.membership.record import Record
from ha.membership.record_keeper import RecordKeeper
from ha.settings import Settings
from tests.support.guards import strict_guard
from txobserver.ids import Member

A = Member("a", "1")
SETTINGS = Settings(lease_ttl=1.0, renew_every=0.2, lease_drift=0.0)


class Watchdog:
    """Keeps what it is shown, and has been renewed when a test says so."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, float] | None] = []
        self.renewed: dict[int, float] = {}

    def turned(self, generation: int, now: float) -> None:
        self.shown.append((generation, now))

    def rest(self) -> None:
        self.shown.append(None)

    def renewed_at(self, generation: int) -> float:
        return self.renewed.get(generation, -math.inf)


class Core:
    """Of a node that was promoted in generation 3 by a change that was sent at 100 s."""

    generation = 3

    def __init__(self) -> None:
        self.keeper = RecordKeeper(Record("c", 5, 3, A, (A,)), 100.0, A, SETTINGS, lambda change: None)
        self.leading: Any = SimpleNamespace(keeper=self.keeper)
        self.now = 100.0
        self.answered: list[str] = []

    def overslept(self, now: float) -> bool:
        return self.leading is not None and self.keeper.expired(now)

    def look_at_clock(self, now: float, wall_ms: int) -> None:
        if self.overslept(now):
            self.leading = None

    def set_clock(self, now: float, wall_ms: int) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""

    def settle(self) -> None:
        """Nothing."""

    def take_effects(self) -> list[Any]:
        return []

    def ask(self) -> None:
        self.answered.append("primary" if self.leading else "no primary")


class Rig:
    """A shell with this core and watchdog, and a clock that a test sets."""

    def __init__(self) -> None:
        self.core: Any = Core()
        self.watchdog = Watchdog()
        self.waited: list[float] = []
        self.forgot = 0
        records: Any = SimpleNamespace(watch=lambda *words: None, rest=lambda: None, wait=self.waited.append)
        clocks = Clocks(lambda: self.core.now, lambda: 0)
        watch = LoopWatch(self.core, self.watchdog)
        nothing: Any = None
        self.shell = Shell(self.core, nothing, records, 0.2, lambda reason: None, strict_guard(), clocks, watch)
        self.shell.on_overslept = self._forget

    def _forget(self) -> None:
        self.forgot += 1

    def ask(self) -> str:
        """What comes of a client, taken before anything else of this turn; returns what the node is then."""
        self.shell.look_at_clock()
        self.shell.report(self.core.ask)
        return str(self.core.answered[-1])


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_each_turn_of_a_primary_is_shown_and_not_too_often(rig: Rig) -> None:
    rig.shell._turn()
    rig.core.now += SHOWN_SECONDS / 2
    rig.shell._turn()
    assert rig.watchdog.shown == [(3, 100.0)]
    rig.core.now = 100.5
    rig.shell._turn()
    assert rig.watchdog.shown == [(3, 100.0), (3, 100.5)]
    rig.core.now = 100.75
    rig.shell._tick()
    assert rig.watchdog.shown[2:] == [(3, 100.75)]
    rig.shell.stop()


async def test_what_is_reported_within_a_turn_completes_none(rig: Rig) -> None:
    """Else one turn of many calls would never look as if it hung."""
    for _ in range(5):
        rig.core.now += 0.1
        rig.ask()
    assert rig.watchdog.shown == []
    await asyncio.sleep(0)
    assert rig.watchdog.shown == [(3, rig.core.now)], "the turn that was asked for is another one"


@pytest.mark.parametrize("end", ["lost", "given up", "stepped down"])
async def test_a_lease_that_is_lost_or_given_up_is_not_to_be_renewed(rig: Rig, end: str) -> None:
    rig.shell._turn()
    if end == "lost":
        rig.core.keeper.conflict(None)
    elif end == "given up":
        rig.core.keeper.release("", 100.0)
    else:
        rig.core.leading = None
    rig.shell._settle()
    rig.shell._settle()
    assert rig.watchdog.shown == [(3, 100.0), None], "once"
    rig.core.now += 0.5
    rig.shell._turn()
    assert rig.watchdog.shown == [(3, 100.0), None]


async def test_a_backup_shows_nothing(rig: Rig) -> None:
    rig.core.leading = None
    for _ in range(3):
        rig.core.now += 1.0
        rig.shell._turn()
    assert rig.watchdog.shown == []


async def test_a_turn_longer_than_the_lease_that_was_renewed_meanwhile(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.shell._turn()
    rig.core.now, rig.watchdog.renewed = 101.5, {3: 100.75}
    with caplog.at_level(logging.WARNING, "txha.turns"):
        assert rig.ask() == "primary"
    assert (rig.waited, rig.forgot) == ([], 0), "no answer was waited for, and nothing is forgotten"
    (record,) = caplog.records
    assert isinstance(record.msg, EventMessage) and record.msg.event == RenewedMeanwhile(1.5)
    rig.core.now = 101.75
    assert rig.ask() == "no primary" and rig.forgot, "it holds from the renewal's begin"


@pytest.mark.parametrize("renewed", [{}, {3: 100.25}, {2: 101.5}, {4: 101.5}])
async def test_a_turn_longer_than_all_renewals_last(rig: Rig, renewed: dict[int, float]) -> None:
    """P10: the node knows that it is primary no more before it answers anything."""
    rig.shell._turn()
    rig.core.now, rig.watchdog.renewed = 101.5, renewed
    assert rig.ask() == "no primary" and rig.forgot
    rig.shell._turn()
    assert rig.watchdog.shown == [(3, 100.0), None]


async def test_a_host_broker_s_lease_is_that_of_the_renewals_as_well(rig: Rig) -> None:
    rig.watchdog.renewed = {3: 100.5}
    rig.core.now = 100.75
    rig.shell._turn()
    assert rig.core.keeper.serves_until == 101.5


async def test_a_node_that_stops_asks_for_no_renewal_and_uses_the_watchdog_no_more(rig: Rig) -> None:
    rig.shell._turn()
    rig.shell.stop()
    assert rig.watchdog.shown == [(3, 100.0), None]
    rig.core.now, rig.watchdog.renewed = 101.5, {3: 101.0}
    rig.shell._tick()
    rig.shell._turn()
    rig.shell.look_at_clock()
    assert rig.watchdog.shown == [(3, 100.0), None] and rig.core.keeper.serves_until == 101.0
