"""Faults put into the protocol on purpose, each one minimal change, and the promise whose checker must find it.

``plant`` makes the change for as long as the ExitStack is open. Nothing here is ever switched on but by the tests.
"""

from tests.simulation.seeded import (
    branches,
    durability,
    joiners,
    liveness,
    losses,
    names,
    primaries,
    record,
    shell,
    transactions,
)
from tests.simulation.seeded.planting import SEEDED, Seeded, find

__all__ = [
    "SEEDED",
    "Seeded",
    "branches",
    "durability",
    "find",
    "joiners",
    "liveness",
    "losses",
    "names",
    "primaries",
    "record",
    "shell",
    "transactions",
]
