"""The scenario by itself: what becomes of a fault that finds no node to hit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from python_tests.harness.history import History
from python_tests.harness.judge import Verdict
from python_tests.harness.load import Load
from python_tests.harness.stress import scenario
from python_tests.harness.stress.fault import Fault
from python_tests.harness.stress.record import Recorder
from python_tests.harness.stress.results import Injection
from python_tests.harness.stress.schedule import FixedSchedule, Step


class Idle:
    """Stands for the clients: they do nothing and are content."""

    def __init__(self, *_: object) -> None:
        self.history = History()

    def start(self) -> None:
        pass

    def wait_committed(self, count: int, seconds: float) -> None:
        pass

    def drain(self, seconds: float, settle: float) -> Verdict:
        return Verdict()


class Down(Fault):
    """Takes its target away until it is healed."""

    def __init__(self, target: str, running: set[str]) -> None:
        super().__init__(target)
        self._running = running

    def begin(self) -> str:
        if self.target not in self._running:
            raise LookupError(f"{self.target} does not run")
        self._running.discard(self.target)
        return f"{self.target} is down"

    def heal(self) -> bool:
        self._running.add(self.target)
        return True


class Place:
    """A site of one node, which every fault takes away."""

    names, urls, settle, cluster_wide = ("node-1",), (), 0.0, frozenset[str]()

    def __init__(self) -> None:
        self.running = {"node-1"}

    def fault(
        self, kind: str, target: str, history: History, chance: random.Random, say: Callable[[str], None]
    ) -> tuple[Fault, str]:
        return Down("node-1", self.running), ""

    def healthy(self) -> bool:
        return bool(self.running)


def injections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place, steps: list[Step], said: list[str]
) -> list[Injection]:
    """Of one round by this schedule."""
    monkeypatch.setattr(scenario, "Clients", Idle)
    monkeypatch.setattr(scenario, "wait_for_commits_under_way", lambda history, seconds: None)
    with Recorder(tmp_path / "history.parquet") as recorder:
        extent = scenario.Extent(rounds=1, seconds=0.1, patience=1)
        args = (place, Load(), FixedSchedule(steps), extent, recorder, random.Random(1), said.append)
        result = scenario.Stress(*args).run()
    assert not result.stalled
    return result.injections


class SlowPlace(Place):
    """Of many nodes; each fault takes its time to begin."""

    def fault(
        self, kind: str, target: str, history: History, chance: random.Random, say: Callable[[str], None]
    ) -> tuple[Fault, str]:
        self.running.add(kind)
        fault, begin = Down(kind, self.running), Down.begin

        def slowly() -> str:
            time.sleep(0.3)
            return begin(fault)

        fault.begin = slowly  # type: ignore[method-assign]
        return fault, ""


def test_faults_that_begin_late_overlap_only_where_the_schedule_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``stop`` begins while ``kill`` lasts; ``cut`` is to come when both have ended, however late they are."""
    steps = [Step(0.0, "kill", "any", 0.2), Step(0.1, "stop", "any", 0.2), Step(0.4, "cut", "any", 0.0)]
    kill, stop, cut = injections(tmp_path, monkeypatch, SlowPlace(), steps, [])
    assert kill.began < stop.began < kill.healed
    assert max(kill.healed, stop.healed) < cut.began


def test_a_fault_that_finds_its_target_away_happens_when_the_fault_before_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a fault begins late and lasts into the next one, which must not be left out."""
    said: list[str] = []
    steps = [Step(0.0, "kill", "any", 0.2), Step(0.1, "stop", "any", 0.0)]
    found = injections(tmp_path, monkeypatch, Place(), steps, said)
    assert [(each.kind, each.hit, each.alone) for each in found] == [("kill", True, True), ("stop", True, True)]
    assert "round 1: no stop yet, node-1 does not run" in said
