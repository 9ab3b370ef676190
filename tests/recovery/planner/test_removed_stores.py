"""The record says who is a member: stores that it does not count, what is asked before one is taken, what is written.

Where nothing else is said, b was removed, with its first store, and a went on alone.
"""

from __future__ import annotations

import msgspec
import pytest

from ha.membership.belonging import membership_of, objection_to
from ha.membership.invariants import check_record
from ha.membership.members import ClusterNode, Membership
from ha.membership.record import Record
from recovery.planner.choice import choose, record_for
from recovery.planner.facts import Site
from tests.recovery.planner.facts import gone, record, site, store
from txobserver.ids import Member

A, B, C = ClusterNode("a", "h", 1, True, "a1"), ClusterNode("b", "h", 2), ClusterNode("c", "h", 3, True, "1")
REMOVED = Membership(2, (A,), (Member("b", "1"),))


def says(membership: Membership, generation: int = 1) -> Record:
    """Ready is a alone."""
    return msgspec.structs.replace(record(generation, "a1"), membership=membership)


def written(found: Site) -> Record:
    """What is written with the store that is chosen."""
    choice = choose(found)
    assert choice.chosen is not None and choice.chosen.member is not None
    made = record_for(choice.chosen, choice, found)
    check_record(made)
    assert objection_to(made, choice.chosen.member) is None and made.ready == (choice.chosen.member,)
    return made


BACK = ClusterNode("b", "", 0, True, "1")
LISTED = msgspec.structs.replace(B, counts=True, store="1")


@pytest.mark.parametrize(
    ("before", "why", "nodes"),
    [
        (REMOVED, "the store of b was removed from the cluster", (A, BACK)),
        (Membership(2, (A, B), REMOVED.removed), "the store of b was removed from the cluster", (A, LISTED)),
        (Membership(2, (A,)), "b is no member of the cluster", (A, BACK)),
    ],
    ids=["removed", "removed, and its name added again", "removed too long ago to be remembered"],
)
def test_the_only_store_left_is_that_of_a_removed_node(
    before: Membership, why: str, nodes: tuple[ClusterNode, ...]
) -> None:
    """``txha recover`` wrote a record that nobody could lead: b stayed outside."""
    found = site(gone("a"), store("b1"), by=says(before), nodes=frozenset("ab"))
    choice = choose(found)
    assert choice.chosen is not None and choice.chosen.node == "b" and not choice.sure and choice.missing == ("a",)
    assert choice.asks.startswith(why) and choice.asks in choice.reasons and "--accept-data-loss" in choice.asks
    assert ("txha member move b HOST:PORT" in choice.asks) == (BACK in nodes)
    made = written(found)
    assert membership_of(made) == Membership(3, nodes) and made.loss_accepted == made.generation


def test_the_store_of_a_member_is_chosen_before_that_of_a_removed_node() -> None:
    """Though the latter has more: the members have gone on without it."""
    by = says(Membership(2, (A, C), REMOVED.removed))
    found = site(gone("a"), store("b1", "1.20"), store("c1"), by=by)
    choice = choose(found)
    assert choice.chosen is not None and choice.chosen.node == "c" and not choice.asks and not choice.sure
    assert membership_of(written(found)) == by.membership


def test_an_operator_may_choose_the_store_of_a_removed_node() -> None:
    """It holds what had passed the commit point, and what the member's store lacks."""
    by = says(Membership(2, (A, C), REMOVED.removed))
    found = site(gone("a"), store("b1", "1.20", applied="1.20"), store("c1"), by=by)
    assert choose(found).between == ("c", "b") and not choose(found).asks
    picked = msgspec.structs.replace(found, picked="b")
    assert choose(picked).picked and choose(picked).asks
    assert membership_of(written(picked)) == Membership(3, (A, C, BACK))


def test_a_record_that_a_store_contradicts_rules_none_out() -> None:
    """It is an older one: b may have been added again since. What is written counts b in any case."""
    found = site(store("a1"), store("b1", "2.20", "1.1 2.11"), by=says(REMOVED), nodes=frozenset("ab"))
    choice = choose(found)
    assert choice.chosen is not None and choice.chosen.node == "b" and choice.sure and not choice.asks
    assert membership_of(written(found)) == Membership(3, (A, BACK))
