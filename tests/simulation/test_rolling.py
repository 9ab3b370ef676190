"""Seeds in which a cluster is upgraded to a release with calls hold, and what they look for is found where it is put
in; ``python -m tests.simulation run --rolling`` runs as many as are wanted."""

from __future__ import annotations

import pytest

from ha.messages.alarms import NO_ALARMS
from ha.messages.calls import TicketAsk
from ha.messages.stream import Ack
from tests.simulation.releases import TODAY
from tests.simulation.rolling import NEW, OLD, RollingRun
from tests.simulation.seeded import SEEDED, find
from tests.support.since import feature_of_message
from txobserver.actions import FLAG
from txobserver.configuration import OPERATIONS

SEEDS = 5


def test_a_seed_is_upgraded_and_its_flag_raised() -> None:
    """``make slices`` runs more."""
    run = RollingRun(1)
    result = run.run()
    assert not result.broken and result.commits and run.upgrades.changes and run.asked
    for process in run.cluster.running():
        assert process.release is NEW and process.core.replica.contents.calls.names_of(FLAG) == ["calls"]


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_seeds_hold() -> None:
    for seed in range(2, SEEDS):
        assert not (result := RollingRun(seed).run()).broken, result.broken


@pytest.mark.timeout(900)
@pytest.mark.slice
@pytest.mark.parametrize(
    ("name", "first", "said"),
    [
        ("no_node_lacks_a_feature", 4, "does not know"),
        ("requests_go_to_a_desk_of_any_release", 0, "is sent TicketAsk, which its release cannot read"),
        ("flags_are_raised_without_members_that_are_down", 8, "is a member and cannot be reached"),
        ("flags_keep_no_node_out", 0, "does not know calls, whose flag is raised"),
    ],
)
def test_a_seeded_fault_is_found_by_what_looks_for_it(name: str, first: int, said: str) -> None:
    """Another checker may find it sooner in one seed or the other."""
    fault = next(each for each in SEEDED if each.name == name)
    found = (find(fault, seeds=1, first=seed) for seed in range(first, 40))
    assert any(each is not None and said in each.broken for each in found)


def test_a_release_reads_the_messages_of_its_features() -> None:
    asked, told = TicketAsk(1, bytes(16)), Ack(1, 800, 3)
    assert [each.reads(asked) for each in (NEW, OLD, TODAY)] == [True, False, True]
    assert OLD.reads(told) and not NEW.reads(NO_ALARMS)
    assert feature_of_message(28) == "calls" and feature_of_message(52) == "users" and feature_of_message(8) is None
    assert OLD.operations < OPERATIONS
