"""Seeds that hold; the same seed is the same run; the checks are checked. Long runs: ``make sim``."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.simulation.campaign import campaign, striking
from tests.simulation.faults import COMBINATIONS, KINDS, LOSSES
from tests.simulation.run import Run
from tests.simulation.seeded import SEEDED, Seeded, find
from tests.simulation.shrink import shrink
from tests.support.cases import some_of

ROOT = Path(__file__).parents[2]
SEEDS = 24
CHUNK = 6
FAULTS = [each for each in SEEDED if not each.rare]
OF_EACH_PROMISE = {promise: fault for fault in reversed(FAULTS) for promise in fault.promises}
IN_THE_SLICES = [each for number, each in enumerate(FAULTS) if number % 3 == 0 or each in OF_EACH_PROMISE.values()]
"""Of the seeded faults: some of each promise; ``make every-case`` takes all but the rare ones."""


def test_a_few_seeds_hold() -> None:
    """Some break no promise; ``make slices`` runs more, and ``make sim`` as many as are wanted."""
    results = [Run(seed).run() for seed in range(1000, 1003)]
    assert not [result.broken for result in results if result.broken]
    assert sum(result.commits for result in results) > 30 and sum(result.failovers for result in results) > 1


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_seeds_hold(tmp_path: Path) -> None:
    """Some dozens of seeds break no promise, and are not idle; every kind of fault is among them."""
    file = tmp_path / "done"
    totals = campaign(0, SEEDS, os.cpu_count() or 1, file, print, size=CHUNK)
    assert not totals.broken
    assert totals.seeds == SEEDS and totals.idle < SEEDS / 10
    assert totals.commits > 10 * SEEDS and totals.failovers > SEEDS / 2 and totals.hits > SEEDS
    said: list[str] = []
    assert campaign(0, SEEDS, 1, file, said.append, size=CHUNK).seeds == SEEDS and not said, "done is not run again"
    assert {"storeless", "flapping"} <= totals.kinds.keys()
    for kind in sorted({*KINDS, *LOSSES, *COMBINATIONS} - set(totals.kinds)):
        assert struck(kind), f"{kind} struck in no seed that draws it"


def struck(kind: str) -> bool:
    """A fault of this kind strikes in one of the next seeds that draw it; what it meets breaks no promise."""
    for seed in striking(kind, SEEDS, 5):
        result = Run(seed).run()
        assert not result.broken
        if kind in result.struck:
            return True
    return False


def simulate(hash_seed: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return found.stdout


def test_a_seed_is_the_same_to_the_letter_every_time() -> None:
    first, second = (simulate(hash_seed, "replay", "11") for hash_seed in "12")
    assert first == second and "every promise held" in first and "commits worker" in first


@pytest.mark.timeout(900)
def test_no_seed_depends_on_how_strings_are_hashed() -> None:
    """Seed 30013 once did: connections were closed in the order of a set."""
    first, second = (simulate(hash_seed, "run", "--each", "--seeds", "1", "--first", "30013") for hash_seed in "12")
    assert first == second and "30013" in first


def test_the_slices_take_a_fault_of_each_promise() -> None:
    promises = [{promise for fault in faults for promise in fault.promises} for faults in (FAULTS, IN_THE_SLICES)]
    assert promises[0] == promises[1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", some_of(FAULTS, suite=[], slices=IN_THE_SLICES), ids=lambda each: each.name)
def test_a_seeded_fault_is_found(fault: Seeded) -> None:
    """By the checker that it was meant for. The rare ones take longer: ``python -m tests.simulation seeded``."""
    found = find(fault, seeds=300, first=fault.first)
    assert found is not None and found.promise in fault.promises


@pytest.mark.timeout(900)
def test_what_fails_is_shrunk_to_what_it_takes() -> None:
    fault = next(each for each in SEEDED if each.name == "resync_while_in_ready_set")
    found = find(fault, seeds=300, first=fault.first)
    while found is not None and len(found.schedule) == 1:
        found = find(fault, seeds=300, first=found.seed + 1)
    assert found is not None
    with ExitStack() as stack:
        fault.plant(stack)
        short = shrink(found.seed, found.promise, found.schedule, print)
        assert len(short) < len(found.schedule)
        assert Run(found.seed, short).run().promise == found.promise
        assert all(
            Run(found.seed, [f for f in short if f is not each]).run().promise != found.promise for each in short
        )
