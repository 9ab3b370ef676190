"""From the clients' record of one handover to its figures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from python_tests.harness.history import FAILED, OK, UNKNOWN, History


@dataclass(frozen=True)
class HandedOver:
    """One handover. ``pause``: the longest time between two answers ok to any clients around it, in seconds.

    ``unknown``, ``failed``: of the transactions and plain publishes that ended around it. ``said``: what the new
    primary says of it: how long none served, how many clients were closed, how many outcomes may be unknown.
    """

    how: str
    former: str
    pause: float
    unknown: int
    failed: int
    said: dict[str, Any]


def longest_pause(times: Sequence[float], began: float, ended: float) -> float:
    """The longest time between two of ``times``, in order, of those that overlap with ``began`` to ``ended``.

    Seconds. What was before the first one, or comes after the last, is no pause between two.
    """
    pairs = itertools.pairwise(times)
    return max((later - before for before, later in pairs if later > began and before < ended), default=0.0)


def handed_over(
    history: History, how: str, former: str, began: float, ended: float, said: dict[str, Any]
) -> HandedOver:
    """The figures of a handover between two moments on the history's clock."""
    attempts = [each for each in list(history.attempts) if each.answered is not None]
    times = sorted(each.answered or 0.0 for each in attempts if each.outcome == OK)
    around = [each.outcome for each in attempts if began <= (each.answered or 0.0) <= ended]
    pause = longest_pause(times, began, ended)
    return HandedOver(how, former, pause, around.count(UNKNOWN), around.count(FAILED), said)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that so many of a hundred are not above; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share) // 100) - 1)] if ordered else 0.0


def summary(found: Sequence[HandedOver], broken: Sequence[str], unknown: int) -> dict[str, Any]:
    """For ``--json``. ``unknown``: of the whole run."""
    pauses = [each.pause for each in found]
    return {
        "handovers": [asdict(each) for each in found],
        "unknown": unknown,
        "failed": sum(each.failed for each in found),
        "pause": {
            "p50": statistics.median(pauses) if pauses else 0.0,
            "p95": percentile(pauses, 95),
            "max": max(pauses, default=0.0),
        },
        "broken": list(broken),
    }
