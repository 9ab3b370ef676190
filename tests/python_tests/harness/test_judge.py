"""The judge finds every kind of broken promise, and raises no false alarm."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from python_tests.harness.history import FAILED, OK, ROLLED_BACK, UNKNOWN, Attempt, Count, History, Session, Sighting
from python_tests.harness.judge import PROMISES, Verdict, judge
from tests.python_tests.model_broker import FLAWS, OUTPUTS, Run

QUEUES = ("a", "b", "c")


def history(*outcomes: str) -> History:
    """One channel's transactions, a second apart; what is ok was seen whole, half a second after its commit.

    Each consumes an input that was published long before. One session watches each queue all the time.
    """
    built = History(sessions=[Session(queue, f"consumer-{queue}", 2, -1.0) for queue in QUEUES])
    for number, outcome in enumerate(outcomes):
        at = float(number)
        sent = None if outcome == ROLLED_BACK else at + 0.1
        messages = {f"w.{number}/{n}": queue for n, queue in enumerate(QUEUES)}
        built.attempts.append(
            Attempt(f"w.{number}", "w", number, "", (f"in.{number}/0",), messages=messages, outcome=outcome)
        )
        built.attempts[-1].first_publish, built.attempts[-1].commit_sent = at, sent
        built.attempts[-1].answered = at + 0.2
        if outcome == OK:
            built.sightings += see(built, number, at + 0.6)
    return built


def see(built: History, number: int, at: float, redelivered: bool = False) -> list[Sighting]:
    """One transaction, seen whole."""
    sessions = built.sessions[:3]
    return [Sighting(q, f"w.{number}/{n}", redelivered, at, sessions[n]) for n, q in enumerate(QUEUES)]


def feed(built: History, number: int, outcome: str = OK) -> None:
    """The publish of an input."""
    attempt = Attempt(f"in.{number}", "feeder", number - 1000, plain=True, messages={f"in.{number}/0": "in"})
    attempt.first_publish = attempt.commit_sent = -3.0
    attempt.outcome, attempt.answered = outcome, -2.0
    built.attempts.insert(0, attempt)
    if outcome == OK:
        built.sightings.append(Sighting("in", f"in.{number}/0", False, -1.0))


def verdict(built: History) -> Verdict:
    return judge(built, QUEUES)


def test_an_honest_history() -> None:
    found = verdict(history(OK, ROLLED_BACK, UNKNOWN, FAILED, OK))
    assert not found.broken
    assert (found.committed, found.rolled_back, found.failed, found.unknown_absent) == (2, 1, 1, 1)


def drop(built: History, queue: str) -> None:
    built.sightings = [s for s in built.sightings if s.queue != queue]


def swap_in(built: History, queue: str) -> None:
    """That queue hands out the last transaction before the first."""
    mine = [s for s in built.sightings if s.queue == queue]
    mine[0].id, mine[-1].id = mine[-1].id, mine[0].id
    for sighting in mine:
        sighting.at = 9.0


def no_earlier_session(built: History) -> None:
    """Its first sighting is marked, though the consumer that watched before had ended cleanly before it was sent."""
    built.sessions.insert(0, Session("a", "before", 2, -9.0, -8.0, True))
    built.sightings[0].redelivered = True


def a_long_rest(built: History) -> None:
    """No consumer watches a queue for which a commit was answered, and it counts nothing."""
    built.sessions[0].ended, built.sessions[0].clean = 0.15, True
    later = Session("a", "consumer-a", 2, 0.55)
    built.sightings[0].session = later
    built.sessions.append(later)
    built.counts.append(Count("a", 0, 0.3, 0.4))


BREAKS: dict[str, Callable[[History], object]] = {
    "partial: w.0": lambda h: drop(h, "b"),
    "partial: w.0/1 came from b behind": lambda h: swap_in(h, "b"),
    "lost: w.0": lambda h: h.sightings.clear(),
    "lost: in.9 was committed": lambda h: (feed(h, 9), h.sightings.pop()),
    "lost: in.9/0 (ok) took no effect": lambda h: (feed(h, 9), feed(h, 0)),
    "duplicated: w.0": lambda h: h.sightings.append(Sighting("a", "w.0/0", False, 3)),
    "same consumer": lambda h: h.sightings.append(Sighting("a", "w.0/0", True, 3, h.sessions[0])),
    "duplicated: in.0": lambda h: (feed(h, 0), setattr(h.attempts[3], "consumed", ("in.0/0",))),
    "phantom: w.1": lambda h: h.sightings.extend(see(h, 1, 3)),
    "before its commit": lambda h: setattr(h.sightings[0], "at", 0.05),
    "from nowhere: unheard of": lambda h: h.sightings.append(Sighting("a", "unheard of", False, 3)),
    "from nowhere: w.2/0": lambda h: h.sightings.append(Sighting("b", "w.2/0", False, 3)),
    "out of order": lambda h: swap_in(h, "c"),
    "mismarked": no_earlier_session,
    "miscounted: a counted 1, and can have held 0 to 0": lambda h: h.counts.append(Count("a", 1, 0.03, 0.05)),
    "miscounted: a counted 0, and can have held 1 to 1": a_long_rest,
}


@pytest.mark.parametrize("name", BREAKS)
def test_every_break_is_found(name: str) -> None:
    built = history(OK, ROLLED_BACK, OK)
    assert not verdict(built).broken
    BREAKS[name](built)
    assert any(name in line for line in verdict(built).broken), verdict(built).broken


def test_an_unknown_one_may_be_whole_but_not_half() -> None:
    built = history(OK, UNKNOWN)
    built.sightings += see(built, 1, 2)
    assert not verdict(built).broken and verdict(built).unknown_whole == 1
    built.sightings.pop()
    assert verdict(built).partial


def test_an_unknown_one_s_input_takes_effect_once_whichever_it_was() -> None:
    built = history(UNKNOWN, OK)
    feed(built, 0)
    assert verdict(built).lost == ["in.0/0 (ok) took no effect"]
    built.attempts[-1].consumed = ("in.0/0",)
    assert not verdict(built).broken
    built.sightings = see(built, 0, 0.5) + built.sightings
    assert any("took effect in w.0 and in w.1" in each for each in verdict(built).duplicated)


def test_an_input_that_was_never_confirmed_need_not_be_there() -> None:
    built = history(OK)
    feed(built, 7, UNKNOWN)
    assert not verdict(built).broken
    built.sightings.append(Sighting("in", "in.7/0", False, 1.0))
    feed(built, 0)
    assert verdict(built).lost == ["in.7/0 (unknown) took no effect"], "it was there, and then it was not"


def test_a_redelivery_that_says_so_is_no_duplicate() -> None:
    built = history(OK)
    built.sightings.append(Sighting("a", "w.0/0", True, 2, Session("a", "another", 2, 1.5)))
    assert not verdict(built).broken and verdict(built).redelivered == 1


def test_of_two_workers_the_first_may_record_last() -> None:
    built = history(OK)
    feed(built, 0)
    built.sightings.insert(0, Sighting("in", "in.0/0", True, -1.5))
    assert not verdict(built).broken
    built.sightings.append(Sighting("in", "in.0/0", False, 3.0))
    assert verdict(built).duplicated
    built = history(OK)
    built.sessions.append(Session("a", "earlier", 2, 0.0))
    built.sightings.insert(0, Sighting("a", "w.0/0", True, 0.5, built.sessions[-1]))
    assert verdict(built).duplicated, "one consumer at a time: what came first is known"


def test_a_mark_is_right_where_somebody_may_have_had_the_message() -> None:
    built = history(OK)
    no_earlier_session(built)
    built.sessions[0].clean = False
    assert not verdict(built).broken, "it is not known when the broker noticed that it had ended"
    built.kills = [-2.0]
    assert verdict(built).mismarked, "but a broker that was killed served no client any more"


def test_time_to_take_over_counts_commits_sent_after_the_kill() -> None:
    built = history(OK, OK, OK)
    built.kills = [0.15, 9.0]
    assert verdict(built).takeovers == [pytest.approx(1.05), None]


def test_what_was_in_flight_at_a_moment_is_read_from_the_record() -> None:
    built = history(OK, OK, ROLLED_BACK)
    feed(built, 0)
    built.attempts[2].answered = 2.5
    built.attempts[-1].on_purpose = True
    assert built.undecided_at(1.05) == (1, 0)
    assert built.undecided_at(2.1) == (1, 1)
    assert built.undecided_at(3.0) == (0, 0)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 800), st.integers(0, 4))
def test_no_false_alarm(seed: int, steps: int, kills: int) -> None:
    assert not judge(Run(random.Random(seed), steps=steps, kills=kills).history, OUTPUTS).broken


def test_the_honest_runs_are_not_idle() -> None:
    found = judge(Run(random.Random(1), steps=3000, kills=6).history, OUTPUTS)
    assert not found.broken
    assert found.committed > 50 and found.rolled_back > 5 and found.failed > 5 and found.redelivered > 5
    assert found.unknown_whole and found.unknown_absent and found.counts > 50


@pytest.mark.parametrize("flaw", FLAWS)
def test_every_flaw_of_a_broker_is_found(flaw: str) -> None:
    """By the check that was meant for it, in most runs."""
    promise = FLAWS[flaw]
    found = [bool(getattr(judge(Run(random.Random(seed), flaw).history, OUTPUTS), promise)) for seed in range(16)]
    assert sum(found) >= 4, found


@pytest.mark.every
def test_the_time_to_judge_rises_no_faster_than_the_messages() -> None:
    """90,000 messages in large transactions, with a count for each: a look at all for each would take hours."""
    built = History(sessions=[Session("a", "consumer-a", 1, -1.0)])
    for number in range(30):
        attempt = Attempt(
            f"w.{number}", "w", number, messages={f"w.{number}/{n}": "a" for n in range(3000)}, outcome=OK
        )
        attempt.first_publish = attempt.commit_sent = float(number)
        attempt.answered = number + 0.5
        built.attempts.append(attempt)
        for place, message in enumerate(attempt.messages):
            at = number + 0.5 + place / 10_000
            built.sightings.append(Sighting("a", message, False, at, built.sessions[0]))
            built.counts.append(Count("a", 2999 - place, at, at))
    found = judge(built, ["a"])
    assert not found.broken and found.sightings == found.counts == 90_000


def test_there_is_a_flaw_for_every_promise() -> None:
    assert set(FLAWS.values()) == set(PROMISES)
