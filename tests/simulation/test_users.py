"""Seeds in which operators change users at all nodes hold; other tests look for the faults that are put in."""

from __future__ import annotations

import pytest

from tests.simulation.seeded import SEEDED, find
from tests.simulation.users_run import UsersRun

SEEDS = 6


def test_a_few_seeds_hold() -> None:
    """``make slices`` runs more, and ``python -m tests.simulation run --users`` as many as are wanted."""
    runs = [UsersRun(seed) for seed in (1, 2)]
    assert not [broken for run in runs if (broken := run.run().broken)]
    assert sum(run.steps for run in runs) > 20


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_seeds_hold() -> None:
    for seed in range(SEEDS):
        assert not (result := UsersRun(seed).run()).broken, result.broken


def test_a_user_at_one_node_only_is_found() -> None:
    """``test_a_seeded_fault_is_found`` looks for the others of this kind."""
    fault = next(each for each in SEEDED if each.name == "a_user_is_applied_at_one_node_only")
    found = find(fault, seeds=10, first=fault.first)
    assert fault.users and found is not None and found.promise == "P7"
