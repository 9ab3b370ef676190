"""What the coordination process renews unasked, and what the node's next change meets then."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from broker_plugin.coordination.renewer import LATE, Renewer
from ha.membership.record import CasConflict, CoordinationError, MemoryCoordination, Record
from ha.membership.watchdog import Renewals
from txobserver.ids import Member

A, B = Member("a", "1"), Member("b", "1")
RENEWALS = Renewals(every=2.0, hung_after=7.0)
BEFORE = Record("c", 4, 2, B, (A, B))
PROMOTED = Record("c", 5, 3, A, (A, B))


class Rig:
    """A node that was promoted at 100 s, whose loop completes a turn where a test says so.

    A change takes ``seconds``.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.turned: dict[int, float] = {}
        self.told: list[tuple[int, float]] = []
        self.store = MemoryCoordination()
        self.store.record = BEFORE
        self.renewer = Renewer(self, self, RENEWALS, lambda: self.now)
        self.fails = False
        self.seconds = 0.0
        assert self.renewer.due_in() is None
        assert self.renewer.compare_and_set(4, PROMOTED).version == 5
        self.turned = {3: 100.0}

    def compare_and_set(self, expected: int, record: Record) -> Record:
        self.now += self.seconds
        if self.fails:
            raise CoordinationError("the disk is full")
        return self.store.compare_and_set(expected, record)

    def turned_at(self, generation: int) -> float:
        return self.turned.get(generation, -math.inf)

    def renewed(self, generation: int, begun_at: float) -> None:
        self.told.append((generation, begun_at))

    def wait(self) -> float:
        """Until a renewal is due, which is made then; returns for how long that was."""
        seconds = self.renewer.due_in()
        assert seconds is not None
        self.now += seconds
        self.renewer.renew()
        return seconds


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_is_renewed_while_the_node_asks_in_time(rig: Rig) -> None:
    for version in range(5, 10):
        rig.now += RENEWALS.every
        due = rig.renewer.due_in()
        assert due is not None and due > 0
        assert rig.renewer.compare_and_set(version, replace(PROMOTED, version=version + 1)).version == version + 1
    assert rig.told == []


def test_the_next_renewal_is_due_behind_the_begin_of_the_last_change(rig: Rig) -> None:
    """However long the change took: the lease counts from its begin, too."""
    rig.seconds = 1.0
    rig.renewer.compare_and_set(5, replace(PROMOTED, version=6))
    assert rig.renewer.due_in() == LATE * RENEWALS.every - rig.seconds
    rig.wait()
    assert rig.told == [(3, 102.5)] and rig.renewer.due_in() == LATE * RENEWALS.every - rig.seconds


def test_a_node_in_a_long_turn_keeps_its_lease_until_it_is_taken_for_hung(rig: Rig) -> None:
    assert rig.wait() == LATE * RENEWALS.every
    assert rig.store.record == replace(PROMOTED, version=6) and rig.told == [(3, 102.5)]
    assert rig.wait() == LATE * RENEWALS.every
    assert rig.told == [(3, 102.5), (3, 105.0)]
    rig.wait()
    assert rig.now == 107.5 and rig.store.version == 7, "its last turn is 7 s ago"
    rig.wait()
    assert rig.store.version == 7
    rig.turned[3] = rig.now
    rig.wait()
    assert rig.store.version == 8, "it goes on: its lease may be over, and whether it is it judges by what it is told"


@pytest.mark.parametrize("ago", [RENEWALS.hung_after, RENEWALS.hung_after - 0.001])
def test_the_limit_counts_from_the_last_completed_turn(rig: Rig, ago: float) -> None:
    rig.turned[3] = 100.0 + LATE * RENEWALS.every - ago
    rig.wait()
    assert (rig.store.version == 6) == (ago < RENEWALS.hung_after)


def test_renewed_while_the_node_asks(rig: Rig) -> None:
    """Its change expects the version that it was told last, and is made behind the renewals."""
    rig.wait()
    rig.wait()
    alone = Record("c", 6, 3, A, (A,))
    assert rig.renewer.compare_and_set(5, alone) == replace(alone, version=8) == rig.store.record
    rig.turned[3] = rig.now
    rig.wait()
    assert rig.store.record == replace(alone, version=9), "what is renewed is what the node has changed last"
    given_up = replace(alone, version=9, released=True)
    assert rig.renewer.compare_and_set(8, given_up).version == 10
    assert rig.renewer.due_in() is None, "a lease that was given up is renewed no more"


def test_only_changes_of_the_same_generation_meet_the_renewal_s_version(rig: Rig) -> None:
    """P10: a node that has stepped down and stands again does so for the version that it has read."""
    rig.wait()
    with pytest.raises(CasConflict) as conflict:
        rig.renewer.compare_and_set(5, replace(PROMOTED, version=6, generation=4))
    assert conflict.value.current == replace(PROMOTED, version=6)
    assert rig.renewer.due_in() is None


def test_only_the_version_that_the_node_was_told_last_meets_the_renewal_s(rig: Rig) -> None:
    """A change that expects another one was made for a record that the node does not know any more, or not yet."""
    for expected in (4, 99):
        rig.wait()
        with pytest.raises(CasConflict):
            rig.renewer.compare_and_set(expected, replace(PROMOTED, version=expected + 1))
        rig.renewer.compare_and_set(rig.store.version, replace(PROMOTED, version=rig.store.version + 1))


@pytest.mark.parametrize("other", [Record("c", 0, 4, B, (B,)), Record("c", 0, 3, A, (A,))], ids=["primary", "operator"])
def test_another_s_change_ends_the_renewals_and_is_not_changed_over(rig: Rig, other: Record) -> None:
    rig.wait()
    theirs = rig.store.compare_and_set(6, other)
    rig.wait()
    assert rig.store.record == theirs and rig.told == [(3, 102.5)] and rig.renewer.due_in() is None
    with pytest.raises(CasConflict):
        rig.renewer.compare_and_set(5, replace(PROMOTED, version=6))
    assert rig.store.record == theirs


def test_another_s_change_is_not_changed_over_before_the_next_renewal_either(rig: Rig) -> None:
    rig.wait()
    theirs = rig.store.compare_and_set(6, Record("c", 0, 3, A, (A,)))
    with pytest.raises(CasConflict) as conflict:
        rig.renewer.compare_and_set(5, replace(PROMOTED, version=6))
    assert conflict.value.current == rig.store.record == theirs


def test_a_node_that_leads_no_more_is_renewed_no_more(rig: Rig) -> None:
    for turned in ({}, {2: 200.0}, {4: 200.0}):
        rig.turned = turned  # type: ignore[assignment]
        rig.wait()
    assert rig.store.version == 5 and rig.told == []


def test_a_renewal_whose_outcome_is_unknown_is_not_told_and_tried_again(rig: Rig) -> None:
    rig.fails = True
    rig.wait()
    assert rig.told == []
    rig.fails = False
    assert rig.wait() == LATE * RENEWALS.every
    assert rig.told == [(3, 105.0)]


def test_with_a_change_whose_outcome_is_unknown_nothing_is_renewed(rig: Rig) -> None:
    rig.fails = True
    with pytest.raises(CoordinationError):
        rig.renewer.compare_and_set(5, replace(PROMOTED, version=6, ready=(A,)))
    rig.fails = False
    assert rig.renewer.due_in() is None
    rig.renewer.renew()
    assert rig.store.version == 5
    rig.renewer.compare_and_set(5, replace(PROMOTED, version=6))
    rig.wait()
    assert rig.store.version == 7, "from the next change on it is"


def test_a_record_without_a_primary_is_nobody_s_to_renew() -> None:
    store = MemoryCoordination()
    rig = Rig()
    renewer = Renewer(store, rig, RENEWALS, lambda: 100.0)
    renewer.compare_and_set(0, Record("c", 1, 0, None, (A,), released=True))
    assert renewer.due_in() is None
