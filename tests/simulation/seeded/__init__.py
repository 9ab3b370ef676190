"""Faults put into the protocol on purpose, each one minimal change, and the promise whose checker must find it.

``plant`` makes the change for as long as the ExitStack is open. Nothing here is ever switched on but by the tests.
"""

from tests.simulation.seeded import (
    branches,
    calls,
    definitions,
    durability,
    handovers,
    joiners,
    links,
    liveness,
    losses,
    members,
    names,
    parts,
    primaries,
    record,
    rolling,
    shell,
    transactions,
    users,
    versions,
)
from tests.simulation.seeded.planting import SEEDED, Seeded, find

__all__ = [
    "SEEDED",
    "Seeded",
    "branches",
    "calls",
    "definitions",
    "durability",
    "find",
    "handovers",
    "joiners",
    "links",
    "liveness",
    "losses",
    "members",
    "names",
    "parts",
    "primaries",
    "record",
    "rolling",
    "shell",
    "transactions",
    "users",
    "versions",
]
