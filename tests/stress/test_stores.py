"""The comparison of stores: logs that differ and decisions that were told otherwise are found, and nothing else is."""

from __future__ import annotations

import pytest

from python_tests.history import FAILED, OK, ROLLED_BACK, UNKNOWN, Attempt, History, Sighting
from python_tests.stress.stores import NodeLog, different_digests, different_logs, told_otherwise


def log(name: str, **differing: object) -> NodeLog:
    values = {"marks": {1: 10, 2: 20, 3: 30}, "decisions": {7: True}, "attempts": {7: "w.1"}, **differing}
    return NodeLog(name, **values)  # type: ignore[arg-type]


def client(outcome: str, seen: bool) -> History:
    history = History(attempts=[Attempt("w.1", "w", 1, messages={"w.1/0": "a"}, outcome=outcome)])
    if seen:
        history.sightings.append(Sighting("a", "w.1/0", False, 1.0))
    return history


def test_equal_logs_agree_also_where_one_begins_later_or_ends_earlier() -> None:
    assert not different_logs([log("one"), log("two", marks={2: 20, 3: 30, 4: 40}), log("three", marks={1: 10})])


def test_events_that_differ_at_one_position_are_found() -> None:
    (line,) = different_logs([log("one"), log("two", marks={1: 10, 2: 21, 3: 31})])
    assert "one and two" in line and "at 2 positions, first at 2" in line


def test_two_decisions_are_found() -> None:
    (line,) = different_logs([log("one"), log("two", decisions={7: False})])
    assert "differ on transaction 0x7" in line


@pytest.mark.parametrize(
    ("outcome", "seen", "commit", "wrong"),
    [
        (OK, True, True, False),
        (OK, True, False, True),
        (FAILED, False, False, False),
        (FAILED, False, True, True),
        (ROLLED_BACK, False, True, True),
        (UNKNOWN, True, True, False),
        (UNKNOWN, False, False, False),
        (UNKNOWN, True, False, True),
        (UNKNOWN, False, True, True),
    ],
)
def test_what_a_client_was_told_is_what_the_log_says(outcome: str, seen: bool, commit: bool, wrong: bool) -> None:
    found = told_otherwise([log("one", decisions={7: commit})], client(outcome, seen))
    assert bool(found) == wrong


def test_a_transaction_without_a_decision_in_this_log_says_nothing() -> None:
    assert not told_otherwise([log("one", decisions={})], client(OK, True))


@pytest.mark.parametrize("what", ["queues", "outcomes"])
def test_nodes_at_the_same_event_have_the_same_queues(what: str) -> None:
    nodes = [{"name": name, "applied": 5, "queues": {"q": 1}, "outcomes": 1} for name in "ab"]
    assert not different_digests([*nodes, {"name": "c", "applied": 4, "queues": {"q": 9}}, {"name": "d"}])
    nodes[1][what] = {"q": 2}
    (line,) = different_digests(nodes)
    assert f"a and b have both applied 5, and their {what} differ" in line
