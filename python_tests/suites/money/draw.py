"""A round by its seed."""

from __future__ import annotations

import random

from python_tests.suites.coordinator.crashes import AT
from python_tests.suites.money.case import (
    APART,
    APPLICATIONS,
    BOOK,
    CONSUME,
    DEEDS,
    GET,
    LOG,
    RECOVER,
    SEND,
    TELLERS,
    TOGETHER,
    WAYS_TO_DECIDE,
    Round,
    Stop,
    steps,
    ways,
)

SENDS = 8
STOPS = (2, 5)
"""Of each teller."""
COMPACT = (600, 4000)


def draw(seed: int, sends: int = SENDS) -> Round:
    """The round of this seed, the same for ever."""
    by = random.Random(f"money {seed}")
    layout = by.choice((APART, APART, TOGETHER))
    decided = {each: by.choice(WAYS_TO_DECIDE) for each in APPLICATIONS}
    same = layout == APART and by.random() < 0.5
    return Round(
        seed=seed,
        layout=layout,
        ways=decided,
        takes={each: by.choice((GET, CONSUME)) for each in APPLICATIONS},
        roles={"A": "alice", "B": "alice" if same else "bob"},
        sends=sends,
        compact=by.randint(*COMPACT),
        stops={each: _stops(by, decided[each[0]], sends) for each in TELLERS},
    )


def _stops(by: random.Random, way: str, sends: int) -> tuple[Stop, ...]:
    """In the order of their turns."""
    turns = sorted(by.randrange(2 * sends) for _ in range(by.randint(*STOPS)))
    return tuple(_stop(by, way, turn) for turn in turns)


def _stop(by: random.Random, way: str, turn: int) -> Stop:
    kind = by.choice((SEND, BOOK))
    step = by.choice(steps(way, kind))
    deed = by.choice(list(DEEDS))
    how = by.choice(ways(deed))
    if way == LOG and step == "decision written" and deed == RECOVER and how == AT:
        step = "decision synced"  # a teller at the other one has the log locked, and a run would wait for it
    return Stop(turn, kind, step, deed, how, by.choice(APPLICATIONS))
