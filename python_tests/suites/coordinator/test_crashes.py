"""Some of the cases of ``make dtx-crashes``, those at which the outcome hangs; docs/dtx_crashes.md shows all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from python_tests.suites.coordinator.crashes import (
    AFTER,
    AT,
    BETWEEN,
    CLUSTER,
    COORDINATOR,
    DATABASE,
    DONE,
    LEFT,
    OTHER,
    PRIMARY,
    VICTIMS,
    WAITING,
    Case,
    Site,
    all_cases,
)
from python_tests.suites.coordinator.transfer import KILLED, ORDER_OF_STEPS, WORK_STEPS
from recovery.coordinator.steps import STEPS

CASES = {
    Case(COORDINATOR, "messages published"): WAITING,
    Case(COORDINATOR, "broker prepared"): WAITING,
    Case(COORDINATOR, "decision written"): DONE,  # a SIGKILL leaves what was written, synced or not
    Case(COORDINATOR, "decision synced"): DONE,
    Case(COORDINATOR, "database committed"): DONE,
    Case(COORDINATOR, "broker committed"): DONE,
    Case(PRIMARY, "broker prepared"): DONE,
    Case(PRIMARY, "database prepared", AFTER): None,
    Case(BETWEEN, "database prepared", AFTER): None,
    Case(OTHER, "decision synced"): DONE,
    Case(CLUSTER, "decision synced", LEFT): DONE,
    Case(DATABASE, "account debited"): WAITING,
    Case(DATABASE, "decision synced", LEFT): DONE,
}
"""What must come of each; None where it depends on the moment."""


@pytest.fixture(scope="module")
def site(may_kill_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("crashes")) as running:
        yield running


@pytest.mark.parametrize(("case", "order"), CASES.items(), ids=map(str, CASES))
def test_a_crash_leaves_all_or_nothing_and_no_doubt(site: Site, case: Case, order: str | None) -> None:
    found = site.run(case)
    assert order in (None, found.order)
    assert case.victim != COORDINATOR or found.told == KILLED


def test_money_rows_and_messages_agree(site: Site) -> None:
    assert len(site.orders) == len(CASES)
    site.check_the_rest()


def test_every_step_of_the_coordinator_is_one_of_a_transfer() -> None:
    assert {*STEPS, *WORK_STEPS} == set(ORDER_OF_STEPS)
    assert set(CASES) <= set(all_cases())
    assert {(case.victim, case.step) for case in all_cases() if case.way == AT} == {
        (victim, step) for victim in VICTIMS for step in ORDER_OF_STEPS
    }
