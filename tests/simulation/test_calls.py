"""Seeds in which operators make cluster calls hold, and what their checker looks for is found where it is put in."""

from __future__ import annotations

import pytest

from tests.simulation.calls_run import CallsRun
from tests.simulation.seeded import SEEDED, find

SEEDS = 6


def test_a_few_seeds_hold() -> None:
    """``make slices`` runs more, and ``python -m tests.simulation run --calls`` as many as are wanted."""
    runs = [CallsRun(seed) for seed in (21, 22)]
    assert not [broken for run in runs if (broken := run.run().broken)]
    assert sum(run.recorded for run in runs) > 10


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_seeds_hold() -> None:
    for seed in range(SEEDS):
        assert not (result := CallsRun(seed).run()).broken, result.broken


def test_a_seed_is_the_same_every_time() -> None:
    first, second = (CallsRun(3, transcript=True).run().transcript for _ in range(2))
    assert first == second and [line for line in first if "runs call" in line]


def test_one_that_runs_nothing_is_found() -> None:
    """``test_a_seeded_fault_is_found`` looks for the others of this kind."""
    fault = next(each for each in SEEDED if each.name == "a_failed_action_is_not_undone")
    found = find(fault, seeds=10, first=fault.first)
    assert fault.calls and found is not None and found.promise == "P13"
