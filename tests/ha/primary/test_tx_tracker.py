"""The life of TxTrackers, one rule a test."""

from __future__ import annotations

import pytest

from ha.primary.tx_tracker import TxTrackers
from tests.support.operations import lines_of

TX = 7


def tracking() -> TxTrackers:
    trackers = TxTrackers()
    trackers.track(TX, {1, 2}, prepared=10)
    return trackers


def test_one_for_each_queue() -> None:
    trackers = tracking()
    assert len(trackers) == 2 and not trackers.clear


def test_the_durable_acknowledgement_of_the_decision_empties() -> None:
    trackers = tracking()
    trackers.decide(TX, 20)
    trackers.acknowledged(19, past_guard=True)
    assert not trackers.clear
    trackers.acknowledged(20, past_guard=False)
    assert trackers.clear


def test_deciding_or_sending_does_not_empty() -> None:
    trackers = tracking()
    trackers.decide(TX, 20)
    assert len(trackers) == 2


def test_undecided_and_before_the_guard_nothing_empties() -> None:
    trackers = tracking()
    trackers.acknowledged(1000, past_guard=False)
    assert not trackers.clear


def test_past_the_guard_with_the_prepare_it_becomes_a_participant() -> None:
    trackers = tracking()
    trackers.acknowledged(9, past_guard=True)
    assert not trackers.clear
    trackers.acknowledged(10, past_guard=True)
    assert trackers.clear


def test_a_rollback_empties() -> None:
    trackers = tracking()
    trackers.rolled_back(TX)
    assert trackers.clear


def test_the_deletion_of_a_queue_empties_its_tracker_only() -> None:
    trackers = tracking()
    trackers.queue_deleted(1)
    assert len(trackers) == 1
    trackers.queue_deleted(2)
    assert trackers.clear


def test_a_transaction_that_touches_no_queue_holds_nobody_back() -> None:
    trackers = TxTrackers()
    trackers.track(TX, set(), prepared=1)
    assert trackers.clear


@pytest.mark.plain
def test_an_acknowledgement_costs_what_it_empties_however_many_trackers_there_are() -> None:
    costs = []
    for count in (10, 10_000):
        trackers = TxTrackers()
        for number in range(count):
            trackers.track(number, {1, 2}, 2 * number)
            trackers.decide(number, 2 * number + 1)
        trackers.track(count, {1}, 2 * count)
        costs.append(lines_of(lambda t=trackers: t.acknowledged(1, False)))  # type: ignore[misc]
        assert len(trackers) == 2 * count - 1
    assert costs[0] == costs[1]


@pytest.mark.plain
def test_what_was_rolled_back_or_emptied_costs_no_later_acknowledgement_anything() -> None:
    """Nothing is left of it: a joiner may outlive millions of transactions."""
    costs = []
    for count in (10, 10_000):
        trackers = TxTrackers()
        for number in range(count):
            trackers.track(number, {1}, number)
            trackers.rolled_back(number)
            trackers.track(count + number, {2}, number)
        trackers.queue_deleted(2)
        assert trackers.clear and len(trackers) == 0
        costs.append(lines_of(lambda t=trackers, c=count: t.acknowledged(c, True)))  # type: ignore[misc]
    assert costs[0] == costs[1]
