"""Seeds in which clusters grow and shrink hold; other tests look for the faults that are put in."""

from __future__ import annotations

import pytest

from tests.simulation.members_run import MembersRun
from tests.simulation.seeded import SEEDED, find

SEEDS = 8


def test_a_few_seeds_hold() -> None:
    """``make slices`` runs more, and ``python -m tests.simulation run --members`` as many as are wanted."""
    runs = [MembersRun(seed) for seed in (2, 14)]
    assert not [broken for run in runs if (broken := run.run().broken)]
    assert sum(run.changes for run in runs) > 5


@pytest.mark.timeout(1800)
@pytest.mark.slice
def test_seeds_hold() -> None:
    for seed in range(SEEDS):
        assert not (result := MembersRun(seed).run()).broken, result.broken


def test_a_record_that_is_rewritten_without_its_members_is_found() -> None:
    """``test_a_seeded_fault_is_found`` looks for the others of this kind."""
    fault = next(each for each in SEEDED if each.name == "record_rewritten_without_members")
    found = find(fault, seeds=4, first=fault.first)
    assert fault.members and found is not None and found.promise == "P10"
