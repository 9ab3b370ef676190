"""Some of the cases of ``make spark-crashes``; and that they find the faults which source and sink once had."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from python_tests.harness.crash_table import Broken
from python_tests.suites.spark_queues.drawn import campaign as drawn_campaign
from python_tests.suites.spark_queues.drawn.brokers import Brokers
from python_tests.suites.spark_queues.drawn.campaign import Result, Totals, campaign, held, run_one
from python_tests.suites.spark_queues.drawn.case import (
    ACCEPT_LOSS,
    DEEDS,
    GIVE_UP,
    HANG_BACKUPS,
    KILL_DRIVER,
    KILL_PRIMARY,
    LEAVE_BEHIND,
    LOOK_AT_MESSAGES,
    LOOK_AT_SINK,
    POINTS,
    SETTLE_SPARK,
    STEPS,
    SUSPEND,
    TAKE_OVER,
    WAKE,
    Case,
    Step,
)
from python_tests.suites.spark_queues.drawn.draw import REAL_IN, draw
from python_tests.suites.spark_queues.drawn.planted import FAULTS, put_back
from python_tests.suites.spark_queues.drawn.refusals import ASTRAY, REFUSALS, refusal
from python_tests.suites.spark_queues.drawn.run import NOTHING, Done, Found
from recovery.pipeline.queues import steps
from tests.support.cases import some_of

PAGE = Path(__file__).parents[3] / "docs" / "spark_drawn_crashes.md"

FINDS = {
    "undelivered-is-gone": 29,
    "returns-behind-prepare": 56,
    "elsewhere-is-none": 158,
    "empty-is-none": 158,
    "any-history-is-ones-own": 44,
    "full-is-the-end": 10,
}
"""A seed for each fault."""

SURE = sorted({*FINDS} - {"undelivered-is-gone"})
"""Those that are found however busy the machine is: what a driver does beside nodes that hang depends on that."""

CASE = Case(1, 5, 2, (1,), (Step("settled", 0, (KILL_DRIVER,)),))
FOUND = Found(
    (Done(KILL_DRIVER, "settled"), Done(TAKE_OVER, "dry", NOTHING), Done(SETTLE_SPARK, "dry", "another driver")),
    {"x": 2}, 3, 4, 5,
)
SLICE = sorted({*FINDS.values(), 11, 229})
"""Of the cases that a fault once broke; behind the accepted loss of 44 the query goes on, and of 229 it refuses."""


@pytest.fixture(scope="module")
def brokers(may_kill_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("drawn")) as running:
        yield running


@pytest.mark.timeout(600)
@pytest.mark.slice
@pytest.mark.parametrize("seed", SLICE)
def test_a_drawn_case(brokers: Brokers, tmp_path: Path, seed: int) -> None:
    brokers.settled_down()
    case = draw(seed)
    found = run_one(case, brokers, tmp_path)
    assert found.rows == case.rows or case.accepts_loss
    assert len(found.done) == sum(len(step.deeds) for step in case.steps)


@pytest.mark.timeout(600)
@pytest.mark.slice
@pytest.mark.parametrize("fault", SURE)
def test_a_drawn_case_finds_a_fault_that_is_put_back(brokers: Brokers, tmp_path: Path, fault: str) -> None:
    brokers.settled_down()
    with put_back(fault), pytest.raises(Broken):
        run_one(draw(FINDS[fault]), brokers, tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_can_be_put_back(fault: str) -> None:
    """What it replaces is still called so: the cases that need it are not run each time."""
    with put_back(fault):
        pass


def test_a_case_is_drawn_by_its_seed_alone() -> None:
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]
    assert len({draw(seed)._replace(seed=0) for seed in range(200)}) > 190


def test_200_cases_have_everything() -> None:
    """Each deed, each point, rows astray, attempts doubled, some by Spark, and in each a pair of crashes at least."""
    cases = [draw(seed) for seed in range(1, 201)]
    parts = [step for case in cases for step in case.steps]
    assert {deed for step in parts for deed in step.deeds} == set(DEEDS)
    assert {*POINTS} <= {step.point for step in parts}
    assert any(case.astray is not None for case in cases) and any(case.doubled for case in cases)
    assert 200 / REAL_IN / 2 <= sum(case.real for case in cases) <= 200 / REAL_IN * 2
    assert all(len(case.steps) >= 2 for case in cases)
    assert all({step.point for step in case.steps} <= {*STEPS} for case in cases if case.real)


def test_a_loss_is_accepted_now_and_then() -> None:
    """Drawn apart: what other seeds draw does not depend on it. Some queries go on behind it, some must refuse."""
    cases = [case for case in map(draw, range(1, 401)) if case.accepts_loss]
    assert 8 <= len(cases) <= 32 and {case.tolerant for case in cases} == {True, False}
    assert not any(case.real or case.astray is not None or case.steps[0].deeds != (LEAVE_BEHIND,) for case in cases)


def test_the_source_is_full_now_and_then() -> None:
    """Drawn apart: what other seeds draw does not depend on it."""
    cases = [case for case in map(draw, range(1, 401)) if case.full]
    assert 8 <= len(cases) <= 32
    assert not any(case.real or case.accepts_loss or case.astray is not None for case in cases)
    assert all(case.prefetch == 2 * case.per_batch for case in cases)


def test_the_steps_are_those_of_source_and_sink() -> None:
    assert {*STEPS} == {*steps.STEPS}


def test_a_refusal_has_a_name_and_a_cause() -> None:
    held = "OperationalError: a client holds the record of query q, the message of queue x: put it back"
    assert refusal(held, {LOOK_AT_SINK}) == "the record is held"
    assert refusal(held, {KILL_DRIVER, KILL_PRIMARY, HANG_BACKUPS}) is None
    gone = "PipelineError: 1 of 3 messages of a batch that is to be read again have left queue q"
    assert refusal(gone, {LOOK_AT_MESSAGES}) == "messages are gone"
    assert refusal(gone, {KILL_DRIVER, KILL_PRIMARY, GIVE_UP}) is None
    for fault in ("its rows are lost", "the broker has no record of query q"):
        assert refusal(f"PipelineError: {fault}", {*DEEDS, ASTRAY} - {ACCEPT_LOSS}) is None
    assert refusal("PipelineError: its rows are lost", {*DEEDS, ASTRAY}) is None
    other = "PipelineError: what the checkpoint says of queue q is of cluster, accepted loss and generation c/0@1"
    assert refusal(other, {ACCEPT_LOSS}) == "another history" and refusal(other, {*DEEDS} - {ACCEPT_LOSS}) is None
    for fault in ("batch 0 of query q comes late: batch 1 has been decided", "another driver has written offsets/1"):
        assert refusal(f"PipelineError: {fault}", {*DEEDS, ASTRAY} - {SUSPEND}) is None


def test_what_was_done_is_counted_by_its_name() -> None:
    totals = Totals()
    totals.add(held(CASE, 1.5, FOUND))
    assert totals.done == {"kill driver": 1, "take over (there was nothing)": 1, "settle-spark (refused)": 1}
    assert (totals.rows, totals.drivers, totals.points, totals.refused) == (5, 3, 4, {"x": 2})
    assert (totals.cases, totals.real, totals.seconds, totals.real_seconds, totals.broken) == (1, 0, 1.5, 0.0, {})


def test_cases_that_a_file_has_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a campaign was ended, it goes on; a line that was half written is a case that has not ended."""
    ran: list[int] = []

    def results(cases: Iterable[Case], directory: Path) -> Iterator[Result]:
        for case in cases:
            ran.append(case.seed)
            broken = "a row came twice" if case.seed == 2 else ""
            yield held(case, 1.5, FOUND)._replace(broken=broken)

    monkeypatch.setattr(drawn_campaign, "_run", results)
    cases, file = [CASE._replace(seed=seed, real=seed == 3) for seed in (1, 2, 3)], tmp_path / "cases.jsonl"
    said: list[str] = []
    campaign(cases[:2], tmp_path, said.append, False, Totals(), file)
    with file.open("a") as half:
        half.write('{"seed": 3')
    totals, again = Totals(), Totals()
    campaign(cases, tmp_path, said.append, False, totals, file)
    assert ran == [1, 2, 3] and len(said) == 3
    campaign(cases, tmp_path, said.append, False, again, file)
    assert totals == again and ran == [1, 2, 3]
    assert (totals.cases, totals.rows, totals.broken) == (3, 15, {2: "a row came twice"})
    assert (totals.real, totals.seconds, totals.real_seconds) == (1, 4.5, 1.5)


def command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "python_tests.suites.spark_queues.drawn", *options], capture_output=True, text=True,
        check=False )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", some_of(["branch prepared", "offset planned"], suite=["offset planned"]))
def test_two_drivers_at_once(brokers: Brokers, tmp_path: Path, point: str) -> None:
    """One is suspended, and its connection goes; it wakes up in the middle of what the other one does."""
    brokers.settled_down()
    steps = Step(point, 1, (SUSPEND, KILL_PRIMARY)), Step("record held", 0, (WAKE,))
    found = run_one(Case(1, 12, 3, (2, 1, 3), steps, patience=5.0), brokers, tmp_path)
    assert (found.rows, found.drivers) == (12, 2) and not any(each.how for each in found.done)


def test_the_command_shows_cases() -> None:
    shown = command("--show", "--json", "--cases", "3", "--seed", "7")
    assert shown.returncode == 0
    assert [case["seed"] for case in json.loads(shown.stdout)] == [7, 8, 9]
    assert command("--show", "--cases", "1", "--seed", "7").stdout == f"{draw(7)}\n"


@pytest.mark.parametrize(
    "wrong",
    [("--put-back", "nothing"), ("--file", "x", "--put-back", "empty-is-none"), ("--cases", "0"), ("--seed", "x")],
)
def test_the_command_refuses_what_cannot_be(wrong: tuple[str, str]) -> None:
    refused = command(*wrong)
    assert refused.returncode == 2 and ("nothing" if wrong[1] == "nothing" else wrong[0]) in refused.stderr


def test_the_page_names_deeds_refusals_and_faults() -> None:
    page = PAGE.read_text()
    for deed, what in DEEDS.items():
        assert f"| {deed} | {what} |" in page
    for name in REFUSALS:
        assert f"| {name} |" in page
    for fault in FAULTS:
        assert f"| `{fault}` |" in page
