"""By how much a primary counts its lease shorter (``ha.membership.lease_length``)."""

from __future__ import annotations

import pytest

from ha.membership.lease_length import LeaseLength
from ha.messages.greeting import LEASE_FEATURE
from ha.settings import Settings
from txobserver.ids import Member

B, C = Member("b", "b1"), Member("c", "c1")
KNOWS = frozenset({LEASE_FEATURE})
SETTINGS = Settings(lease_ttl=4.0, lease_before=1.0, lease_drift=0.1)
SHORTER = pytest.approx(3.0 * 0.9)


def test_the_least_that_a_member_waits_for_counts() -> None:
    length = LeaseLength(SETTINGS, {"b": KNOWS, "c": frozenset({"beats"})})
    assert length.shorter_by([], 10.0) == length.shorter_by([B], 10.0) == 0
    assert length.shorter_by([B, C], 10.0) == length.shorter_by([C, B], 10.0) == length.shorter_by([C], 10.0) == SHORTER


def test_of_a_member_that_was_never_reached_nothing_is_known() -> None:
    assert LeaseLength(SETTINGS, {"b": KNOWS}).shorter_by([B, C], 10.0) == SHORTER


def test_what_was_known_holds_for_a_lease() -> None:
    features = {"b": KNOWS, "c": KNOWS}
    length = LeaseLength(SETTINGS, features)
    assert length.shorter_by([B, C], 10.0) == 0
    del features["c"]
    assert length.shorter_by([B, C], 14.0) == 0
    assert length.shorter_by([B, C], 14.1) == SHORTER
    features["c"] = KNOWS
    assert length.shorter_by([B, C], 14.2) == 0


def test_each_member_is_looked_at_whatever_another_one_waits_for() -> None:
    features = {"b": frozenset[str](), "c": KNOWS}
    length = LeaseLength(SETTINGS, features)
    length.shorter_by([B, C], 10.0)
    del features["c"]
    assert length.shorter_by([C], 11.0) == 0


def test_a_member_that_was_set_back_is_not_known_to_wait_when_it_has_gone() -> None:
    features = {"b": KNOWS}
    length = LeaseLength(SETTINGS, features)
    length.shorter_by([B], 10.0)
    features["b"] = frozenset()
    assert length.shorter_by([B], 11.0) == SHORTER
    del features["b"]
    assert length.shorter_by([B], 11.1) == SHORTER


@pytest.mark.parametrize("before", [0.0, 4.0, 5.0])
def test_where_an_earlier_version_waits_no_shorter_nothing_is_counted_shorter(before: float) -> None:
    settings = Settings(lease_ttl=4.0, lease_before=before)
    assert LeaseLength(settings, {}).shorter_by([B], 10.0) == 0
