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
    WAYS,
    Case,
    Site,
    all_cases,
)
from python_tests.suites.coordinator.transfer import KILLED, ORDER_OF_STEPS, WORK_STEPS
from recovery.coordinator.steps import STEPS
from tests.support.cases import some_of

pytestmark = pytest.mark.slice

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
IN_THE_SUITE = [
    Case(COORDINATOR, "decision synced"),
    Case(PRIMARY, "broker prepared"),
    Case(BETWEEN, "database prepared", AFTER),
    Case(OTHER, "decision synced"),
    Case(CLUSTER, "decision synced", LEFT),
    Case(DATABASE, "account debited"),
]
"""Each victim once at least, each way, and either side of the decision"""


@pytest.fixture(scope="module")
def site(may_kill_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("crashes")) as running:
        yield running


@pytest.mark.parametrize("case", some_of(CASES, IN_THE_SUITE), ids=str)
def test_a_crash_leaves_all_or_nothing_and_no_doubt(site: Site, case: Case) -> None:
    found = site.run(case)
    assert CASES[case] in (None, found.order)
    assert case.victim != COORDINATOR or found.told == KILLED


def test_money_rows_and_messages_agree(site: Site) -> None:
    assert len(site.orders) >= len(IN_THE_SUITE)
    site.check_the_rest()


def test_every_step_of_the_coordinator_is_one_of_a_transfer() -> None:
    assert {*STEPS, *WORK_STEPS} == set(ORDER_OF_STEPS)
    assert set(CASES) <= set(all_cases())
    assert {case.victim for case in IN_THE_SUITE} == set(VICTIMS)
    assert {case.way for case in IN_THE_SUITE} == set(WAYS)
    assert {(case.victim, case.step) for case in all_cases() if case.way == AT} == {
        (victim, step) for victim in VICTIMS for step in ORDER_OF_STEPS
    }
