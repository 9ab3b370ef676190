"""Random runs: a fixed number of seeds in every test run; a long run takes others (``TXHA_SEEDS=first:count``)."""

from __future__ import annotations

import os

import pytest

from tests.simulation.random_run import RandomRun

FIRST, COUNT = (int(part) for part in os.environ.get("TXHA_SEEDS", "0:60").split(":"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_random_schedules(seed: int) -> None:
    RandomRun(seed).run()
