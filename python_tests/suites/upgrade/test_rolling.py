"""Nodes of the release and of the present version take turns in one cluster under load; and how that is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_tests.harness.history import FAILED, OK, ROLLED_BACK, UNKNOWN, Attempt, History
from python_tests.suites.upgrade.campaign import AFTER_SECONDS, Campaign, Told, counted, longest_pause
from python_tests.suites.upgrade.schedule import KILL, NEW, OLD, Step, leg, schedule
from tests.support.releases import installed, present

HAND_OVERS = {str(Step("hand over", version)) for version in (OLD, NEW)}


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_nodes_are_upgraded_one_by_one_and_set_back(tmp_path: Path) -> None:
    """``make upgrade`` goes there once more, and kills the primary in each mixture.

    A primary that hands over may close a client before it has read its commit, and says that it was not done: that has
    failed, and belongs to the hand-over.
    """
    old, new = installed(), present()
    result = Campaign(tmp_path, old, new, print).run(schedule(kills=False, again=False))
    assert result.breaches == [] and result.aside == []
    assert sum(each.failed for each in result.steps if each.step not in HAND_OVERS) == 0
    of_new = [each.left.count(new.version) for each in result.steps]
    assert of_new == [1, 2, 2, 3, 2, 1, 1, 0] and result.committed > 8 * 30


def test_each_node_is_replaced_once_in_a_leg_and_the_primary_last() -> None:
    assert leg(NEW, kills=False) == [
        Step("replace", NEW),
        Step("replace", NEW),
        Step("hand over", NEW),
        Step("replace", NEW),
    ]
    assert [str(each) for each in schedule(False, False)][-2:] == [f"hand-over to {OLD}", f"a backup becomes {OLD}"]
    assert schedule(True, True)[-4:] == leg(NEW, kills=False)


def test_the_primary_of_each_version_is_killed_in_each_mixture() -> None:
    """One node of the new version and two of the old, then two and one; the primary is of either."""
    for version, other in ((NEW, OLD), (OLD, NEW)):
        replaced, primary, killed = 0, other, set()
        for step in leg(version, kills=True):
            replaced += step.kind == "replace"
            primary = step.version if step.kind == "hand over" else primary
            if step is KILL:
                killed.add((replaced, primary))
        assert killed == {(1, other), (1, version), (2, other), (2, version)}


def attempt(began: float, ended: float | None, outcome: str, plain: bool = False, on_purpose: bool = False) -> Attempt:
    return Attempt(
        f"a{began}", "c", 1, plain=plain, on_purpose=on_purpose, outcome=outcome, commit_sent=began, answered=ended
    )


def test_what_is_lost_beside_a_step_is_told() -> None:
    step = Told("a step", "n", "", began=10.0, seconds=2.0)
    history = History()
    history.attempts += [
        attempt(1.0, 2.0, OK),
        attempt(9.0, 10.5, UNKNOWN),
        attempt(11.0, 11.5, FAILED),
        attempt(12.0 + AFTER_SECONDS, 14.0, UNKNOWN, plain=True),
        attempt(11.0, 12.0, ROLLED_BACK, on_purpose=True),
        attempt(11.0, 11.9, OK),
        attempt(13.0 + AFTER_SECONDS, 15.0, UNKNOWN),
        attempt(2.0, 9.9, FAILED),
    ]
    aside = counted(history, [step])
    assert aside == [f"a{13.0 + AFTER_SECONDS} at : unknown", "a2.0 at : failed"]
    assert (step.ok, step.failed, step.unknown, step.unconfirmed) == (1, 1, 1, 1)
    assert step.pause == 1.9 and longest_pause(history, 20.0, 21.0) == 1.0
