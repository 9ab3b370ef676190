"""The judge finds every kind of broken promise, and raises no false alarm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_tests.history import FAILED, OK, ROLLED_BACK, UNKNOWN, Attempt, Count, History, Sighting
from python_tests.judge import Verdict, judge

QUEUES = ("a", "b", "c")


def history(*outcomes: str) -> History:
    """One worker's attempts, a second apart; what is ok was seen whole, half a second after its commit."""
    built = History()
    for number, outcome in enumerate(outcomes):
        at = float(number)
        sent = None if outcome == ROLLED_BACK else at + 0.1
        attempt = Attempt(f"w.{number}", "w", number, f"in-{number}", outcome, at, sent, at + 0.2)
        built.attempts.append(attempt)
        built.fed[attempt.source] = outcome == OK
        if outcome == OK:
            built.sightings += [Sighting(queue, attempt.id, False, at + 0.6) for queue in QUEUES]
    return built


def verdict(built: History) -> Verdict:
    return judge(built, QUEUES)


def test_an_honest_history() -> None:
    found = verdict(history(OK, ROLLED_BACK, UNKNOWN, FAILED, OK))
    assert not found.broken
    assert (found.committed, found.rolled_back, found.failed, found.unknown_absent) == (2, 1, 1, 1)


def drop(built: History, queue: str) -> None:
    built.sightings = [s for s in built.sightings if s.queue != queue]


BREAKS: dict[str, Callable[[History], None]] = {
    "partial": lambda h: drop(h, "b"),
    "lost: w.0": lambda h: h.sightings.clear(),
    "lost: input": lambda h: h.fed.update({"in-9": True}),
    "duplicated: w.0": lambda h: h.sightings.append(Sighting("a", "w.0", False, 3)),
    "duplicated: input": lambda h: setattr(h.attempts[2], "source", "in-0"),
    "phantom: w.1": lambda h: h.sightings.extend(Sighting(q, "w.1", False, 3) for q in QUEUES),
    "before its commit": lambda h: setattr(h.sightings[0], "at", 0.05),
    "from nowhere": lambda h: h.sightings.append(Sighting("a", "unheard of", False, 3)),
    "out of order": lambda h: h.sightings.reverse(),
    "miscounted": lambda h: h.counts.append(Count("a", 1, 0.05)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_every_break_is_found(name: str) -> None:
    built = history(OK, ROLLED_BACK, OK)
    assert not verdict(built).broken
    BREAKS[name](built)
    assert any(name in line for line in verdict(built).broken), verdict(built).broken


def test_an_unknown_one_may_be_whole_but_not_half() -> None:
    built = history(OK, UNKNOWN)
    built.sightings += [Sighting(queue, "w.1", False, 2) for queue in QUEUES]
    assert not verdict(built).broken and verdict(built).unknown_whole == 1
    built.sightings.pop()
    assert verdict(built).partial


def test_a_redelivery_that_says_so_is_no_duplicate() -> None:
    built = history(OK)
    built.sightings.append(Sighting("a", "w.0", True, 2))
    assert not verdict(built).broken and verdict(built).redelivered == 1


def test_time_to_take_over_counts_commits_sent_after_the_kill() -> None:
    built = history(OK, OK, OK)
    built.kills = [0.15, 9.0]
    assert verdict(built).takeovers == [pytest.approx(1.05), None]


@given(st.lists(st.sampled_from([OK, ROLLED_BACK, UNKNOWN, FAILED]), max_size=30), st.randoms())
def test_no_false_alarm(outcomes: list[str], rng: object) -> None:
    built = history(*outcomes)
    for attempt in built.attempts:
        if attempt.outcome == UNKNOWN and rng.random() < 0.5:  # type: ignore[attr-defined]
            at = (attempt.commit_sent or 0) + 0.5
            built.sightings += [Sighting(queue, attempt.id, False, at) for queue in QUEUES]
    built.sightings.sort(key=lambda sighting: sighting.at)
    assert not verdict(built).broken
