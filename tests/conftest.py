"""Generated cases: few, and the same each time, in ``make test``; many, and new ones, in ``make fuzz``."""

from __future__ import annotations

import os
from collections.abc import Iterator

from broker_plugin.compiled import SWITCH, use

if os.environ.get(SWITCH) == "compiled":  # before anything else is imported
    use()

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import EXAMPLES
from tests.support.interrupts import heed_interrupts
from tests.support.invariants import unchecked
from tests.support.left_open import close_what_is_left as close_what_is_left
from txobserver.invariants import CHECKS

CHECKS.switch_on()

SLOW_MACHINE = [HealthCheck.too_slow]
"""How fast cases are made says nothing on a machine that others use too."""

settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=SLOW_MACHINE)
settings.register_profile("fuzz", deadline=None, print_blob=True, suppress_health_check=SLOW_MACHINE)
PROFILE = "fuzz" if EXAMPLES else "suite"
settings.load_profile(PROFILE)

heed_interrupts()


@pytest.fixture
def without_invariants() -> Iterator[None]:
    """For states that a test makes by hand, which no run of events leads to."""
    with unchecked():
        yield


def pytest_report_header() -> str:
    """Which cases these are."""
    if PROFILE == "suite":
        return "generated cases: profile suite, always the same ones"
    return f"generated cases: profile fuzz, {EXAMPLES} examples, new ones for each --hypothesis-seed"
