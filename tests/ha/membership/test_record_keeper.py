"""The lease, and changes of the ready set, one at a time (``ha.membership.record_keeper``)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ha.effects import CompareAndSet
from ha.membership.lease_length import LeaseLength
from ha.membership.record import Record
from ha.membership.record_keeper import RecordKeeper
from ha.messages.greeting import LEASE_FEATURE
from ha.settings import Settings
from txobserver.ids import Member

A, B, C, D = (Member(name, f"{name}1") for name in "abcd")
SETTINGS = Settings(lease_ttl=10.0, renew_every=2.0, lease_drift=0.1)
RECORD = Record("c", 5, 3, A, (A, B, C))


class Kept:
    """A keeper, whose record was stored by a change that was sent at 100 s, and what it asks for."""

    def __init__(self, record: Record = RECORD) -> None:
        self.asked: list[CompareAndSet] = []
        self.keeper = RecordKeeper(record, 100.0, A, SETTINGS, self.asked.append)

    def wished(self) -> Record:
        """The change on its way, which must be one of the record as it is."""
        asked = self.asked[-1]
        assert asked is self.keeper.in_flight
        assert asked.expected == self.keeper.record.version
        assert isinstance(asked.record, Record) and asked.record.version == asked.expected + 1
        assert (asked.record.primary, asked.record.generation) == (A, 3)
        return asked.record

    def stored(self) -> None:
        self.keeper.stored(self.wished())


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_the_lease_runs_from_before_its_renewal_was_sent(kept: Kept) -> None:
    keeper = kept.keeper
    assert keeper.holds(108.9) and not keeper.expired(108.9)
    assert not keeper.holds(109.0) and keeper.expired(109.0), "a tenth early: clocks differ"
    keeper.send_if_due(101.9)
    assert not kept.asked
    keeper.send_if_due(102.0)
    assert kept.wished() == msgspec.structs.replace(RECORD, version=6)
    keeper.send_if_due(108.0)
    assert len(kept.asked) == 1, "one at a time"
    assert not keeper.holds(109.0)
    kept.stored()
    assert keeper.holds(110.9) and not keeper.holds(111.0)
    keeper.send_if_due(103.9)
    assert len(kept.asked) == 1
    keeper.send_if_due(104.0)
    assert len(kept.asked) == 2


def test_a_renewal_that_was_not_asked_for_counts_from_its_begin(kept: Kept) -> None:
    keeper = kept.keeper
    keeper.renewed(105.0)
    assert keeper.holds(113.9) and not keeper.holds(114.0) and keeper.serves_until == 114.0
    keeper.renewed(103.0)
    assert keeper.holds(113.9), "an earlier one takes nothing back"
    keeper.send_if_due(102.0)
    kept.stored()
    assert keeper.holds(113.9), "nor does one that was asked for before, and is told behind it"
    keeper.send_if_due(106.0)
    kept.stored()
    assert keeper.holds(114.9) and not keeper.holds(115.0), "the later of both counts"
    assert keeper.record == replace(RECORD, version=7), "and of the record it changes nothing"


def test_a_renewal_gives_back_no_lease_that_is_lost_or_given_up(kept: Kept) -> None:
    kept.keeper.release("", 105.0)
    kept.keeper.renewed(105.0)
    assert not kept.keeper.holds(106.0) and kept.keeper.serves_until == 0.0
    lost = Kept().keeper
    lost.conflict(None)
    lost.renewed(105.0)
    assert lost.expired(106.0) and lost.serves_until == 0.0


def test_an_answer_that_does_not_come_is_asked_for_again_when_it_is_due(kept: Kept) -> None:
    kept.keeper.send_if_due(102.0)
    kept.keeper.failed()
    kept.keeper.send_if_due(103.9)
    assert len(kept.asked) == 1
    kept.keeper.send_if_due(104.0)
    assert len(kept.asked) == 2 and kept.wished().version == 6
    assert not kept.keeper.holds(109.0)


def test_an_added_member_counts_from_the_sending_on(kept: Kept) -> None:
    keeper = kept.keeper
    assert keeper.counted() == {B, C}
    keeper.add(D, 100.5)
    assert kept.wished().ready == (A, B, C, D)
    assert keeper.counted() == {B, C, D} and not keeper.is_ready(D) and keeper.is_ready(B)
    keeper.failed()
    keeper.forget_add(D)
    assert keeper.counted() == {B, C, D}, "it may still land"
    keeper.send_if_due(103.0)
    assert kept.wished().ready == (A, B, C)
    kept.stored()
    assert keeper.counted() == {B, C}, "nothing earlier can land now"


def test_what_is_there_is_not_added_and_what_is_added_is_added_once(kept: Kept) -> None:
    kept.keeper.add(B, 100.5)
    assert not kept.asked
    kept.keeper.add(D, 100.5)
    kept.keeper.add(D, 100.6)
    kept.stored()
    assert kept.keeper.is_ready(D) and kept.keeper.counted() == {B, C, D}
    kept.keeper.send_if_due(100.7)
    assert len(kept.asked) == 1


def test_a_removed_member_counts_until_that_is_stored(kept: Kept) -> None:
    keeper = kept.keeper
    keeper.remove(B, 100.5)
    assert kept.wished().ready == (A, C) and keeper.counted() == {B, C}
    keeper.remove(C, 100.6)
    assert len(kept.asked) == 1
    kept.stored()
    assert keeper.counted() == {C}
    keeper.send_if_due(100.7)
    assert kept.wished().ready == (A,)
    kept.stored()
    assert keeper.counted() == frozenset()
    keeper.remove(D, 100.8)
    keeper.send_if_due(100.8)
    assert len(kept.asked) == 2, "it was no member"


def test_the_later_wish_counts(kept: Kept) -> None:
    keeper = kept.keeper
    keeper.send_if_due(102.0)
    keeper.add(D, 102.1)
    keeper.remove(D, 102.2)
    keeper.remove(B, 102.3)
    kept.stored()
    keeper.send_if_due(102.4)
    assert kept.wished().ready == (A, C)
    keeper.failed()
    keeper.add(B, 102.5)
    keeper.send_if_due(102.6)
    assert B not in kept.wished().ready, "one that is listed is not added: it must leave first"


def test_who_is_wanted_again_is_not_taken_out_afterwards(kept: Kept) -> None:
    """Its addition may have been made or not, it was to be taken out, and has come back: the removal is forgotten."""
    keeper = kept.keeper
    keeper.add(D, 102.0)
    keeper.remove(D, 102.1)
    keeper.failed()
    keeper.add(D, 102.2)
    assert kept.wished().ready == (A, B, C, D)
    kept.stored()
    keeper.send_if_due(105.0)
    assert kept.wished().ready == (A, B, C, D)


def test_a_released_lease_is_held_no_more(kept: Kept) -> None:
    keeper = kept.keeper
    keeper.release("b", 100.5)
    assert not keeper.holds(100.5) and not keeper.released and not keeper.expired(100.5)
    wished = kept.wished()
    assert (wished.released, wished.preferred, wished.ready) == (True, "b", (A, B, C))
    kept.stored()
    assert keeper.released
    keeper.add(D, 105.0)
    assert len(kept.asked) == 1, "the record is another's now"


def test_one_that_leaves_takes_itself_out_unless_it_is_the_last(kept: Kept) -> None:
    kept.keeper.release("", 100.5, [B])
    assert kept.wished().ready == (B, C) and kept.wished().preferred == ""
    alone = Kept(msgspec.structs.replace(RECORD, ready=(A,)))
    alone.keeper.release("", 100.5, [A, B])
    assert alone.wished().ready == (A,)


@pytest.mark.parametrize("in_flight", [True, False])
def test_failing_primary_leaves_to_one_that_it_removes(kept: Kept, in_flight: bool) -> None:
    """P12: B alone is known to hold what was told, and is on its way out of the ready set; C may be gone for good."""
    keeper = kept.keeper
    if in_flight:
        keeper.remove(B, 100.4)
    else:
        keeper.add(D, 100.4)
        keeper.remove(B, 100.4)
    keeper.release("", 100.5, [B])
    kept.stored()
    keeper.send_if_due(100.6)
    assert kept.wished().released and A in kept.wished().ready and B not in kept.wished().ready


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"version": 6}, False),
        ({"version": 5}, False),
        ({"version": 4}, True),
        ({"version": 6, "primary": B}, True),
        ({"version": 6, "generation": 4}, True),
        ({"version": 6, "cluster_id": "another"}, True),
        (None, True),
    ],
)
def test_whose_change_it_was(kept: Kept, changes: dict[str, object] | None, lost: bool) -> None:
    kept.keeper.send_if_due(102.0)
    current = None if changes is None else msgspec.structs.replace(RECORD, **changes)
    kept.keeper.conflict(current)
    assert kept.keeper.lost == kept.keeper.expired(102.0) == lost
    assert (kept.keeper.record is current) == (not lost) or current == RECORD
    kept.keeper.send_if_due(109.0)
    assert len(kept.asked) == (1 if lost else 2)


def test_a_primary_says_why_its_role_ends(kept: Kept) -> None:
    """No other node is primary where the record is gone, or another record has taken its place."""
    new = msgspec.structs.replace(RECORD, version=9, generation=4, primary=B)
    for current, reason in (
        (None, "the coordination record is gone"),
        (msgspec.structs.replace(new, cluster_id="1" * 32), "the coordination record was replaced"),
        (msgspec.structs.replace(new, generation=2), "the coordination record was replaced"),
        (new, "another node is primary"),
    ):
        assert kept.keeper.farewell(current) == reason
        kept.keeper.conflict(current)
        assert kept.keeper.lost


def test_discarded_while_an_addition_is_on_its_way(kept: Kept) -> None:
    """The change of an operator came first: D's node has ended, though its last words are still to be read here."""
    keeper = kept.keeper
    keeper.add(D, 100.5)
    assert D in kept.wished().ready
    keeper.conflict(replace(keeper.record, version=6))
    keeper.add(D, 100.6)
    assert keeper.in_flight is None and D in keeper.counted(), "an addition that was thought lost might still land"
    keeper.send_if_due(102.5)
    assert kept.wished() == replace(RECORD, version=7)
    kept.stored()
    assert D not in keeper.counted()
    keeper.add(D, 102.6)
    assert D in kept.wished().ready, "it lives after all"


def test_from_its_first_turn_on_a_primary_counts_on_no_longer_lease_than_others_wait_for() -> None:
    """What it tells others of its lease is asked for before it has looked at its clock."""
    settings = Settings(lease_ttl=10.0, lease_before=4.0, renew_every=2.0, lease_drift=0.0)
    features: dict[str, frozenset[str]] = {}
    keeper = RecordKeeper(RECORD, 100.0, A, settings, lambda change: None, LeaseLength(settings, features))
    assert keeper.serves_until == 104.0
    assert keeper.holds(103.9) and not keeper.holds(104.0)
    features.update({"b": frozenset({LEASE_FEATURE}), "c": frozenset({LEASE_FEATURE})})
    assert keeper.holds(109.9) and keeper.serves_until == 110.0 and keeper.expired(110.0)
