"""All attacks: to import this registers them, in the order in which they are played."""

from __future__ import annotations

from python_tests.suites.attacks import (
    branches,
    door,
    floods,
    greedy,
    hoarders,
    malformed,
    neighbours,
    through_backup,
)

MODULES = (malformed, floods, greedy, hoarders, branches, through_backup, neighbours, door)
