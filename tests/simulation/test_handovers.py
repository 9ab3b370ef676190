"""Seeds with one handover after the other hold; and what is told to clients in a handover is looked at."""

from __future__ import annotations

import pytest

from tests.simulation.handovers_run import HandoversRun
from tests.simulation.seeded import SEEDED, find

SEEDS = 6


def test_a_few_seeds_hold() -> None:
    """``make slices`` runs more, and ``python -m tests.simulation run --handovers`` as many as are wanted."""
    runs = [HandoversRun(seed) for seed in (1, 2)]
    assert not [broken for run in runs if (broken := run.run().broken)]
    assert sum(run.handovers for run in runs) > 3
    assert sum(run.drained.drains for run in runs) > 10
    assert sum(len(run.cluster.book.told_not_done) for run in runs) > 0


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_seeds_hold() -> None:
    for seed in range(SEEDS):
        assert not (result := HandoversRun(seed).run()).broken, result.broken


def test_a_lie_to_a_client_is_found() -> None:
    """``test_a_seeded_fault_is_found`` looks for the others of this kind."""
    fault = next(each for each in SEEDED if each.name == "taken_during_the_drain_and_told_not_done")
    found = find(fault, seeds=20, first=fault.first)
    assert fault.handovers and found is not None and found.promise == "P4"
