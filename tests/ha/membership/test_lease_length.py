"""By how much a primary counts its lease shorter (``ha.membership.lease_length``)."""

from __future__ import annotations

import pytest

from ha.membership.lease_length import LeaseLength
from ha.messages.greeting import FEATURES, LEASE_FEATURE
from ha.settings import Settings
from txobserver.ids import Member

B, C = Member("b", "b1"), Member("c", "c1")
KNOWS = frozenset({LEASE_FEATURE})
EARLIER = frozenset({"beats"})
SETTINGS = Settings(lease_ttl=4.0, renew_every=0.5, lease_before=1.0, lease_drift=0.1)
SHORTER = pytest.approx(3.0 * 0.9)


class Linked(LeaseLength):
    """As a node's core tells it of its peers."""

    def __init__(self, settings: Settings = SETTINGS, **peers: frozenset[str]) -> None:
        self.features: dict[str, frozenset[str]] = {}
        super().__init__(settings, self.features)
        for node, known in peers.items():
            self.up(node, known)

    def up(self, node: str, known: frozenset[str] = KNOWS) -> None:
        self.features[node] = known
        self.linked(node, known)

    def down(self, node: str, since: float) -> None:
        self.unlinked(node, self.features.pop(node), since)


def test_this_version_says_that_it_waits() -> None:
    assert LEASE_FEATURE in FEATURES


def test_the_least_that_a_node_waits_for_counts() -> None:
    length = Linked(b=KNOWS)
    assert length.shorter_by([], 10.0) == length.shorter_by([B], 10.0) == 0
    length.up("c", EARLIER)
    assert length.shorter_by([B, C], 10.0) == length.shorter_by([C, B], 10.0) == length.shorter_by([C], 10.0) == SHORTER


def test_of_a_member_that_was_never_reached_nothing_is_known() -> None:
    assert Linked(b=KNOWS).shorter_by([B, C], 10.0) == SHORTER


def test_an_earlier_version_counts_ready_or_not_until_it_says_that_it_waits() -> None:
    length = Linked(b=KNOWS, c=EARLIER)
    assert length.shorter_by([B], 10.0) == SHORTER
    length.down("c", 11.0)
    assert length.shorter_by([B], 100.0) == SHORTER, "an operator may force it"
    length.up("c")
    assert length.shorter_by([B, C], 101.0) == 0


def test_what_was_known_holds_for_some_leases() -> None:
    length = Linked(b=KNOWS, c=KNOWS)
    length.down("c", 10.0)
    assert length.shorter_by([B, C], 16.0) == 0
    assert length.shorter_by([B, C], 16.1) == SHORTER
    assert length.shorter_by([B], 16.1) == 0
    length.up("c")
    assert length.shorter_by([B, C], 16.2) == 0


def test_a_member_that_was_set_back_is_not_known_to_wait_when_it_has_gone() -> None:
    length = Linked(b=KNOWS)
    length.down("b", 10.0)
    length.up("b", EARLIER)
    length.down("b", 11.0)
    assert length.shorter_by([B], 11.1) == SHORTER


@pytest.mark.parametrize("before", [0.0, 4.0, 5.0])
def test_where_an_earlier_version_waits_no_shorter_nothing_is_counted_shorter(before: float) -> None:
    length = Linked(Settings(lease_ttl=4.0, lease_before=before), c=EARLIER)
    assert length.shorter_by([B, C], 10.0) == 0


def test_a_shorter_lease_is_renewed_as_often_as_an_earlier_version_does() -> None:
    length = Linked()
    assert length.renew_every(0.0) == 0.5
    assert length.renew_every(2.7) == 0.2
    often = Linked(Settings(lease_ttl=4.0, renew_every=0.1, lease_before=1.0))
    assert often.renew_every(2.7) == often.renew_every(0.0) == 0.1
