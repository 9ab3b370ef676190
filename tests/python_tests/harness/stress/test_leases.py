"""Who is held to have been primary without a lease, and who is not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from python_tests.harness.history import OK, UNKNOWN, Attempt, History
from python_tests.harness.stress.leases import LASTS, SLACK, LeaseWatch, Word, take_overs, two_primaries
from python_tests.harness.stress.results import Injection
from python_tests.harness.waiting import wait_until

LEASE = 2.0
OVER = 100.0 + LEASE + SLACK
"""From then on, a node that was cut off at 100 must not be primary"""
URLS = {"amqp://1": "node-1", "amqp://2": "node-2"}


def watch(*words: Word) -> LeaseWatch:
    found = LeaseWatch(list, LEASE, URLS)
    found.words = list(words)
    return found


def words(node: str, generation: int, since: float, until: float) -> list[Word]:
    """Said every 0.2 seconds."""
    count = round((until - since) / 0.2) + 1
    return [Word(since + 0.2 * n, since + 0.2 * n + 0.01, node, generation) for n in range(count)]


def cut(**changed: Any) -> Injection:
    """Of node-1, from 100 to 110."""
    given: dict[str, Any] = {"in_force": 100.0, "lifted": 110.0, "leaseless": ["node-1"], "cut_off": ["node-1"]}
    return Injection(
        1, "cut", "node-1", "primary", "cut: 1 to 2", 99.9, 20, 3, healed=110.2, hit=True, **given | changed
    )


def told(node: str, sent: float, answered: float, outcome: str = OK) -> History:
    history = History()
    history.attempts.append(
        Attempt("one", "c", 1, node=node, outcome=outcome, commit_sent=sent, answered=answered, first_publish=sent)
    )
    return history


def test_a_primary_that_goes_on_without_a_lease_is_found() -> None:
    (found,) = watch(*words("node-1", 1, 90, 109)).judge([injection := cut()], History())
    assert found.startswith("without a lease: round 1, cut: 1 to 2: node-1 was active 9.0 s after")
    assert injection.leases_judged


@pytest.mark.parametrize(
    "said",
    [
        words("node-1", 1, 90, OVER - 0.1),
        words("node-2", 2, OVER, 109),
        words("node-1", 1, 110.1, 130),
        words("node-1", 1, OVER + 1, OVER + 1 + LASTS / 2),
    ],
    ids=["until its lease is over", "another node", "after the fault", "one word of a node that was stopped"],
)
def test_what_is_right_is_not_held_against_a_node(said: list[Word]) -> None:
    assert not watch(*said).judge([injection := cut()], History()) and injection.leases_judged


def test_what_a_node_without_a_lease_acknowledges_is_found() -> None:
    (found,) = watch().judge([cut()], told("amqp://1", OVER + 0.1, OVER + 0.2))
    assert "1 commits and publishes were acknowledged, the first 3.2 s after a lease of 2 s" in found


@pytest.mark.parametrize(
    "history",
    [
        told("amqp://2", OVER + 0.1, OVER + 0.2),
        told("amqp://1", OVER - 0.1, OVER + 0.2),
        told("amqp://1", OVER + 0.1, 110.1),
        told("amqp://1", OVER + 0.1, OVER + 0.2, UNKNOWN),
    ],
    ids=["by another node", "sent before", "answered when it was over", "not acknowledged"],
)
def test_what_may_be_acknowledged_is_not_found(history: History) -> None:
    assert not watch().judge([cut()], history)


def test_a_node_that_can_pass_clients_on_is_judged_by_its_own_words_alone() -> None:
    linked = cut(cut_off=[])
    assert not watch().judge([linked], told("amqp://1", OVER + 0.1, OVER + 0.2))
    assert watch(*words("node-1", 1, 90, 109)).judge([linked], History())


def test_a_fault_that_is_shorter_than_a_lease_proves_nothing_of_leases() -> None:
    short = cut(lifted=OVER - 0.1)
    assert not watch(*words("node-1", 1, 90, 120)).judge([short], History()) and not short.leases_judged
    lets_etcd_be = cut(leaseless=[], cut_off=[])
    assert not watch(*words("node-1", 1, 90, 120)).judge([lets_etcd_be], History()) and not lets_etcd_be.leases_judged


def test_two_primaries_at_a_time_are_found() -> None:
    (found,) = two_primaries([*words("node-1", 1, 90, 110), *words("node-2", 2, 105, 110)])
    assert "node-1 said that it was active in generation 1, 5.0 s after node-2 was in 2" in found


@pytest.mark.parametrize(
    "said",
    [
        [*words("node-1", 1, 90, 100), *words("node-2", 2, 99.5, 110)],
        [*words("node-1", 1, 90, 100), *words("node-2", 2, 104, 110), *words("node-1", 3, 111, 120)],
        [*words("node-1", 1, 90, 100), *words("node-2", 2, 104, 110), Word(108, 108.1, "node-1", 1)],
        [*words("node-1", 1, 90, 100), *words("node-1", 2, 104, 110)],
    ],
    ids=["within the slack", "in turn", "one word of a node that was stopped", "the same node twice"],
)
def test_one_primary_after_the_other_is_right(said: list[Word]) -> None:
    assert not list(two_primaries(said))


def test_take_overs_are_counted_by_generation() -> None:
    said = [*words("node-1", 4, 90, 100), *words("node-2", 6, 104, 110)]
    assert take_overs(said, 99.0, 110.0) == 2, "an election that came to nothing counts"
    assert take_overs(said, 105.0, 110.0) == 0 == take_overs(said, 91.0, 99.0)
    assert take_overs([], 0.0, 1.0) == 0 == take_overs(said, 80.0, 95.0)


def test_each_fault_has_its_own_take_overs() -> None:
    first, second = cut(), cut(in_force=112.0, lifted=113.0)
    second.began, second.healed = 112.0, 113.0
    said = [*words("node-1", 1, 90, 100), *words("node-2", 2, 105, 113), *words("node-1", 3, 113.2, 120)]
    assert not watch(*said).judge([first, second], History())
    assert (first.take_overs, second.take_overs) == (1, 1)


def test_what_was_judged_is_not_judged_again() -> None:
    found = watch(*words("node-1", 1, 90, 110), *words("node-2", 2, 105, 110))
    assert found.judge([], History()) and not found.judge([], History())


def test_nodes_are_asked_all_the_time() -> None:
    said: list[dict[str, Any]] = [{"name": "node-1", "state": "active", "generation": 3}]
    said += [{"name": "node-2", "state": "ready", "generation": 3}, {"name": "node-3", "state": "down"}]
    with LeaseWatch(lambda: said, LEASE, URLS) as found:
        wait_until(lambda: len(found.words) >= 2, 20, "two looks")
    assert {(word.node, word.generation) for word in found.words} == {("node-1", 3)}
    assert found.words[0].asked <= found.words[0].answered < found.words[1].asked < time.monotonic()
