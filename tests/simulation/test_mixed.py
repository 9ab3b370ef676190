"""Seeds in which nodes run different releases hold, and what they look for is found where it is put in."""

from __future__ import annotations

import pytest

from ha.messages.greeting import greeting
from tests.simulation.mixed import MixedRun
from tests.simulation.releases import NEWER, OLDER, OLDEST, TODAY, understand
from tests.simulation.seeded import SEEDED, find
from txobserver.configuration import FEATURE_OF

SEEDS = 6


def test_a_few_seeds_hold() -> None:
    """``make slices`` runs more, and ``python -m tests.simulation run --mixed`` as many as are wanted."""
    before = dict(FEATURE_OF)
    for seed in (0, 1, 3):
        run = MixedRun(seed)
        result = run.run()
        assert not result.broken and result.commits and run.upgrades.changes
        assert {process.release for process in run.cluster.running()} == {NEWER}, "all are upgraded in the end"
    assert before == FEATURE_OF, "the product is as it was"


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_seeds_hold() -> None:
    """All releases meet, and what only the newer one knows is refused before every node knows it, and done then."""
    for seed in range(SEEDS):
        assert not (result := MixedRun(seed).run()).broken, result.broken


def test_a_seed_is_the_same_every_time() -> None:
    first, second = (MixedRun(3, transcript=True).run().transcript for _ in range(2))
    assert first == second and [line for line in first if "upgrades" in line]


def test_a_primary_that_does_not_ask_is_found() -> None:
    """By the checker of mixed releases; ``test_a_seeded_fault_is_found`` looks for the others of this kind."""
    fault = next(each for each in SEEDED if each.name == "new_steps_are_written_at_once")
    found = find(fault, seeds=5)
    assert fault.mixed and found is not None and "is attached and does not know" in found.broken


def test_which_releases_understand_each_other() -> None:
    hellos = {release.name: release.greets(greeting("c", "a", "a", 1)) for release in RELEASES}
    assert all(understand(hellos[one.name], hellos[other.name]) for one in SPEAKING for other in SPEAKING)
    assert not any(understand(hellos[OLDEST.name], hellos[other.name]) for other in SPEAKING)


SPEAKING = (TODAY, NEWER, OLDER)
RELEASES = (*SPEAKING, OLDEST)
