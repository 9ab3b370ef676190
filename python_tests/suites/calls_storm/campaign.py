"""A storm from its cluster to its result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from python_tests.harness.waiting import wait_until
from python_tests.suites.calls_storm.catching_up import caught_up
from python_tests.suites.calls_storm.judge import breaches, digest
from python_tests.suites.calls_storm.site import StormSite
from python_tests.suites.calls_storm.storm import ONE, Made, Say, Storm

SETTLE_SECONDS = 90.0


class Result(NamedTuple):
    """What a storm was, and what came of it. Seconds; ``until_one`` and ``until_all``: from asking to the answer."""

    seed: int
    calls: int
    seconds: float
    answers: dict[str, int]
    killed: dict[str, int]
    recorded: int
    digest: str
    until_one: dict[str, float]
    until_all: dict[str, float]
    alone: dict[str, float]
    catching_up: dict[str, float]
    breaches: list[str]


def campaign(directory: Path, calls: int, seed: int, state: int, actions: int, kills: bool, say: Say) -> Result:
    """Raises RuntimeError where it could not be played to its end."""
    try:
        with StormSite(directory) as site:
            storm = Storm(site, calls, seed, kills)
            seconds = storm.play(say)
            wait_until(site.cluster.all_ready, SETTLE_SECONDS, "all nodes ready")
            wait_until(site.settled, SETTLE_SECONDS, "all nodes to have run all calls", every=0.2)
            found = breaches(site, storm.made)
            rows = site.ask(site.nodes[0], "list")
            alone = _alone(site) if actions else {}
            after = caught_up(site, state, actions, say)._asdict() if state or actions else {}
    except TimeoutError as error:
        raise RuntimeError(f"the storm did not come to its end: {error}") from error
    return Result(
        seed,
        calls,
        round(seconds, 1),
        dict(Counter(each.answer["result"] for each in storm.made)),
        storm.deeds,
        len(rows),
        digest(rows),
        _quantiles([each for each in storm.made if each.need == ONE]),
        _quantiles([each for each in storm.made if each.need != ONE]),
        alone,
        {name: round(value, 2) for name, value in after.items()},
        found,
    )


ALONE = 100
"""Calls that are made one after the other when all is quiet, half of them until one node has it."""


def _alone(site: StormSite) -> dict[str, float]:
    """How long a call takes that waits for no other."""
    found: dict[str, list[float]] = {"one": [], "all": []}
    for number in range(ALONE):
        which = "one" if number % 2 else "all"
        began = time.monotonic()
        given = {"level": ["warning" if number % 4 < 2 else "error"]}
        site.make(site.nodes[number % 3], "log_level", given, 1 if which == "one" else "all", 30.0)
        found[which].append(time.monotonic() - began)
    return {f"{which} {name}": value for which, each in found.items() for name, value in _of(each).items()}


def _quantiles(made: Sequence[Made]) -> dict[str, float]:
    return _of([each.seconds for each in made if each.answer["result"] == "done"])


def _of(seconds: Sequence[float]) -> dict[str, float]:
    found = sorted(seconds)
    if not found:
        return {}
    return {name: round(found[min(len(found) - 1, int(len(found) * part))], 3) for name, part in PARTS.items()}


PARTS = {"p50": 0.5, "p99": 0.99}
