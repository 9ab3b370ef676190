"""Changes of the members that change nothing, and what a first one takes from the file of the primary."""

from __future__ import annotations

import pytest

from ha.membership.belonging import membership_of
from ha.membership.members import ADD, MOVE, REMOVE, ClusterNode
from ha.membership.record import Record
from tests.ha.membership.test_members import A, B, C, Desk, nodes_of, record_of


@pytest.mark.parametrize("kind", [ADD, MOVE])
def test_a_first_change_that_changes_nothing(kind: str) -> None:
    """What the file of the primary says already: it is so, and no change has the number 0."""
    desk = Desk(Record("c", 5, 3, A, (A, B), cluster_id="id"))
    desk.ask(kind, "b", "b", 2)
    assert desk.told == [None] and not desk.asked


def test_a_primary_that_listens_on_all_addresses_is_written_into_no_record() -> None:
    """All others would look for it at themselves."""
    desk = Desk(Record("c", 5, 3, A, (A, B), cluster_id="id"))
    desk.keeper.members.founding = (ClusterNode("a", "0.0.0.0", 1), *desk.keeper.members.founding[1:])
    desk.ask(ADD, "d", "d", 4)
    desk.ask(REMOVE, "c")
    assert all(each is not None and "say first where others find a" in each for each in desk.told) and not desk.asked
    desk.ask(MOVE, "a", "ha", 1)
    desk.stored()
    found = membership_of(desk.keeper.record)
    assert desk.told[-1] is None and found is not None and found.find("a") == ClusterNode("a", "ha", 1, True, "a1")


def test_removing_a_removed_member_again() -> None:
    """Who did not hear what became of the first removal asks again."""
    desk = Desk(record_of(nodes_of(A, B, C), A, B, C))
    desk.ask(REMOVE, "c")
    desk.stored()
    desk.ask(REMOVE, "c")
    assert desk.told == [None, None] and len(desk.asked) == 1
