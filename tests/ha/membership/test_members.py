"""Who belongs to the cluster: changes of the members on their way into the record (``ha.membership.members``)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ha.effects import CompareAndSet
from ha.membership.belonging import membership_of, needed, objection_to, with_ready_bound
from ha.membership.member_changes import HANDED_OVER, UNDER_WAY, UNKNOWN
from ha.membership.members import (
    ADD,
    MOST_MEMBERS,
    MOST_REMOVED,
    MOVE,
    REMOVE,
    ChangeRefused,
    ClusterNode,
    MemberChange,
    Membership,
    changed,
    majority,
)
from ha.membership.record import CasConflict, MemoryCoordination, Record, may_follow
from ha.membership.record_keeper import RecordKeeper
from ha.settings import Settings
from txobserver.ids import Member

A, B, C, D, E = (Member(name, f"{name}1") for name in "abcde")
FOLLOW = Settings(lease_ttl=10.0, renew_every=2.0, follow_members=True)


def nodes_of(*members: Member, counts: bool = True) -> tuple[ClusterNode, ...]:
    return tuple(
        ClusterNode(each.node, each.node, 1 + "abcde".index(each.node), counts, each.incarnation if counts else "")
        for each in members
    )


def record_of(members: tuple[ClusterNode, ...], *ready: Member) -> Record:
    return Record("c", 5, 3, A, ready, cluster_id="id", membership=Membership(7, members))


class Desk:
    """A primary, a, with its keeper; what it asks for, and what operators are told."""

    def __init__(self, record: Record, settings: Settings = FOLLOW) -> None:
        self.asked: list[CompareAndSet] = []
        self.told: list[str | None] = []
        self.keeper = RecordKeeper(record, 100.0, A, settings, self._emit)
        self.keeper.members.founding = tuple(replace(each, counts=False, store="") for each in nodes_of(A, B, C))

    def _emit(self, effect: object) -> None:
        if isinstance(effect, CompareAndSet):
            self.asked.append(effect)

    def ask(self, kind: str, name: str, host: str = "", port: int = 0) -> None:
        if self.keeper.members.ask(MemberChange(kind, name, host, port), self.keeper.record, self.told.append):
            self.keeper.send_if_due(100.0)

    @property
    def wished(self) -> Any:
        return self.asked[-1].record

    def stored(self) -> None:
        self.keeper.stored(self.wished)

    @property
    def members(self) -> list[str]:
        found = membership_of(self.keeper.record)
        return [each.name for each in found.nodes] if found is not None else []


def test_the_first_change_takes_the_members_from_the_file_of_the_primary() -> None:
    desk = Desk(Record("c", 5, 3, A, (A, B), cluster_id="id"))
    desk.ask(ADD, "d", "d", 4)
    assert desk.told == [] and membership_of(desk.keeper.record) is None
    desk.stored()
    found = membership_of(desk.keeper.record)
    assert desk.told == [None] and found is not None
    listed = [(each.name, each.counts, each.store) for each in found.nodes]
    assert listed == [("a", True, "a1"), ("b", True, "b1"), ("c", True, ""), ("d", False, "")]
    assert found.number == 1 and needed(desk.keeper.record, FOLLOW) == 2


def test_a_ready_node_that_the_primary_s_file_does_not_list_is_named() -> None:
    desk = Desk(Record("c", 5, 3, A, (A, E), cluster_id="id"))
    desk.ask(ADD, "d", "d", 4)
    assert desk.told[0] is not None and "does not list e, which is ready" in desk.told[0] and not desk.asked


def test_added_nodes_count_before_they_hold_anything() -> None:
    """They do not: a cluster of one goes on committing while two empty nodes are added to it."""
    desk = Desk(record_of(nodes_of(A), A))
    for name, port in (("b", 2), ("c", 3)):
        desk.ask(ADD, name, name, port)
        desk.stored()
    assert desk.members == ["a", "b", "c"] and needed(desk.keeper.record, FOLLOW) == 1
    desk.keeper.add(B, 100.0)
    desk.stored()
    assert needed(desk.keeper.record, FOLLOW) == 1
    desk.keeper.add(C, 100.0)
    assert needed(desk.wished, FOLLOW) == 2 and desk.wished.ready == (A, B, C), "with the grant, not before"
    desk.stored()
    found = membership_of(desk.keeper.record)
    assert found is not None and [each.store for each in found.nodes] == ["a1", "b1", "c1"]


@pytest.mark.parametrize("counting", range(1, 12))
def test_a_grant_never_stops_the_commits(counting: int) -> None:
    """As many as must be ready are: with one more that is ready and counts, they still are."""
    for ready in range(majority(counting), counting + 1):
        assert ready + 1 >= majority(counting + 1)


def test_removed_and_ready() -> None:
    """A member leaves the ready set in the compare-and-set that removes it."""
    desk = Desk(record_of(nodes_of(A, B, C), A, B, C))
    desk.ask(REMOVE, "c")
    assert desk.wished.ready == (A, B) and C in desk.keeper.counted(), "until that is stored"
    desk.stored()
    assert desk.told == [None] and desk.members == ["a", "b"] and desk.keeper.counted() == {B}
    assert needed(desk.keeper.record, FOLLOW) == 1, "of two, one must be ready"
    desk.keeper.add(C, 100.0)
    assert desk.keeper.in_flight is None, "it does not belong any more"


def test_who_is_about_to_leave_is_not_added() -> None:
    desk = Desk(record_of(nodes_of(A, B, C), A, B))
    desk.ask(REMOVE, "c")
    desk.keeper.add(C, 100.0)
    assert desk.keeper.refuses(C) == "c is being removed from the cluster"
    desk.keeper.failed()
    desk.keeper.send_if_due(100.0)
    assert C not in desk.wished.ready


def test_an_addition_that_waits_when_its_node_is_removed_is_dropped() -> None:
    desk = Desk(record_of((*nodes_of(A, B), *nodes_of(C, counts=False)), A, B))
    desk.keeper.send_if_due(200.0)
    desk.keeper.add(C, 200.0)
    desk.ask(REMOVE, "c")
    desk.stored()
    desk.keeper.send_if_due(200.0)
    assert C not in desk.wished.ready
    desk.stored()
    desk.keeper.send_if_due(200.0)
    assert desk.told == [None] and C not in desk.wished.ready


def test_removed_store_comes_back_under_its_name() -> None:
    """And is refused: another store is not."""
    desk = Desk(record_of(nodes_of(A, B, C), A, B))
    desk.ask(REMOVE, "c")
    desk.stored()
    desk.ask(ADD, "c", "c", 9)
    desk.stored()
    assert desk.members == ["a", "b", "c"] and desk.told == [None, None]
    why = objection_to(desk.keeper.record, C)
    assert why is not None and "refused until it is discarded" in why and desk.keeper.refuses(C) == why
    assert objection_to(desk.keeper.record, Member("c", "c2")) is None


def test_a_store_that_is_attached_when_its_node_is_removed_is_refused_too() -> None:
    desk = Desk(record_of(nodes_of(A, B, C), A, B))
    desk.keeper.members.attached = lambda: [Member("c", "c2"), B]
    desk.ask(REMOVE, "c")
    found = membership_of(desk.wished)
    assert found is not None and found.removed == (C, Member("c", "c2"))


def test_the_first_change_knows_the_store_of_a_ready_node_that_is_not_attached() -> None:
    desk = Desk(Record("c", 5, 3, A, (A, B, C), cluster_id="id"))
    desk.ask(REMOVE, "c")
    assert desk.wished.membership.removed == (C,)


def test_a_store_that_is_removed_again_is_listed_once_as_the_latest() -> None:
    found = changed(Membership(1, nodes_of(A, B), (B, C)), MemberChange(REMOVE, "b"), ())
    assert found.removed == (C, B)


def test_a_node_that_is_moved_stays_what_it_is() -> None:
    """It counts, with its store, in its place; and stores that were removed stay so."""
    before = Membership(4, nodes_of(A, B, C), (D,))
    found = changed(before, MemberChange(MOVE, "b", "elsewhere", 20), ())
    b = before.nodes[1]
    assert found == Membership(5, (before.nodes[0], replace(b, host="elsewhere", port=20), before.nodes[2]), (D,))
    desk = Desk(record_of(nodes_of(A, B, C), A, C))
    desk.ask(MOVE, "b", "elsewhere", 20)
    assert desk.keeper.refuses(B) is None, "only one that is removed is about to leave"


def test_two_hosts_may_have_one_port() -> None:
    found = changed(Membership(1, nodes_of(A, B)), MemberChange(ADD, "d", "d", 2), ())
    assert [(each.host, each.port) for each in found.nodes] == [("a", 1), ("b", 2), ("d", 2)]
    with pytest.raises(ChangeRefused, match="b:2 is the address of member b"):
        changed(found, MemberChange(ADD, "e", "b", 2), ())


def test_two_changes_of_the_members_in_flight() -> None:
    """The second is refused, also while the outcome of the first is not known; it may land, and is found by its
    number."""
    desk = Desk(record_of(nodes_of(A, B, C), A, B, C))
    desk.ask(REMOVE, "c")
    first = desk.wished
    desk.ask(REMOVE, "b")
    desk.keeper.failed()
    desk.ask(ADD, "d", "d", 4)
    assert desk.told == [UNDER_WAY, UNDER_WAY] and len(desk.asked) == 1
    desk.keeper.send_if_due(100.0)
    desk.keeper.conflict(first)  # it had landed
    assert desk.told[2:] == [None] and desk.members == ["a", "b"]
    desk.ask(ADD, "d", "d", 4)
    assert desk.keeper.in_flight is not None, "at once"


def test_a_change_whose_outcome_is_not_known_goes_out_again() -> None:
    desk = Desk(record_of(nodes_of(A, B, C), A, B, C))
    desk.ask(MOVE, "b", "b", 20)
    desk.keeper.failed()
    assert desk.told == []
    desk.keeper.send_if_due(100.0)
    assert len(desk.asked) == 2 and desk.asked[0].record == desk.asked[1].record
    desk.stored()
    assert desk.told == [None]


def test_a_change_of_the_record_by_an_operator_makes_it_be_judged_anew() -> None:
    """``txha discard`` has taken b out of the ready set: without c, too few of four are ready."""
    before = record_of(nodes_of(A, B, C, D), A, B, C)
    desk = Desk(before)
    desk.ask(REMOVE, "d")
    desk.keeper.conflict(replace(before, version=6, ready=(A, C)))
    assert desk.told == [] and desk.keeper.members.wanted
    desk.keeper.send_if_due(100.0)
    desk.stored()
    assert desk.told == [None] and desk.members == ["a", "b", "c"]


@pytest.mark.parametrize(
    "counting,ready,name,stops",
    [
        ((A, B, C), (A, B, C), "b", False),
        ((A, B, C), (A, B), "b", False),
        ((A, B, C, D, E), (A, B, C), "b", True),
        ((A, B, C, D, E), (A, B, C), "e", False),
        ((A, B, C, D), (A, B, C), "b", False),
        ((A, B, C), (A,), "b", False),
        ((A, B, C, D, E), (A,), "e", False),
    ],
    ids=[
        "of three ready",
        "of two ready",
        "of five, three ready",
        "one that is not",
        "of four",
        "below it already",
        "and behind it too",
    ],
)
def test_no_removal_stops_the_commits(
    counting: tuple[Member, ...], ready: tuple[Member, ...], name: str, stops: bool
) -> None:
    """Where too few are ready already, one that is gone for good can be removed, and commits go on."""
    desk = Desk(record_of(nodes_of(*counting), *ready))
    desk.ask(REMOVE, name)
    if stops:
        assert desk.told[0] is not None and "2 would be ready (a, c) where 3 must be" in desk.told[0]
        assert not desk.asked
    else:
        few = len(ready) < needed(desk.keeper.record, FOLLOW)
        assert few or len(desk.wished.ready) >= needed(desk.wished, FOLLOW)
        assert len(desk.wished.membership.nodes) == len(counting) - 1


def test_an_explicit_min_ready_stays_what_it_is() -> None:
    fixed = replace_settings(min_ready=2)
    desk = Desk(record_of(nodes_of(A, B), A, B), fixed)
    desk.ask(REMOVE, "b")
    assert desk.told[0] is not None and "1 would be ready (a) where 2 must be" in desk.told[0]
    assert needed(desk.keeper.record, fixed) == 2


def replace_settings(**changes: Any) -> Settings:
    return Settings(lease_ttl=10.0, renew_every=2.0, **changes)


def test_a_removal_that_the_same_proposal_makes_impossible_is_refused_when_that_is_stored() -> None:
    desk = Desk(record_of(nodes_of(A, B, C, D, E), A, B, C, D))
    desk.keeper.send_if_due(200.0)  # on its way: what is wished for now goes with the next
    desk.ask(REMOVE, "b")
    desk.keeper.remove(C, 200.0)
    desk.stored()
    desk.keeper.send_if_due(200.0)
    assert desk.wished.ready == (A, B, D) and desk.told == []
    desk.stored()
    assert desk.told[0] is not None and "2 would be ready" in desk.told[0] and desk.members == list("abcde")


def test_what_cannot_be_is_said_in_one_sentence() -> None:
    desk = Desk(record_of(nodes_of(A, B), A, B))
    desk.ask(REMOVE, "x")
    desk.ask(REMOVE, "a")
    desk.ask(ADD, "b", "elsewhere", 1)
    desk.ask(ADD, "d", "b", 2)
    desk.ask(MOVE, "b", "a", 1)
    assert [told and told.split(":")[0] for told in desk.told] == [
        "there is no member x; there are a, b",
        "a is the primary",
        "b is a member already, at b",
        "b",
        "a",
    ]
    assert not desk.asked
    desk.ask(ADD, "b", "b", 2)
    desk.ask(MOVE, "b", "b", 2)
    assert desk.told[5:] == [None, None] and not desk.asked, "it is so already"
    alone = Desk(record_of(nodes_of(A), A))
    alone.ask(REMOVE, "a")
    assert alone.told == ["a is the only member, and cannot be removed: add another node first, or just stop it"]


def test_a_primary_that_ends_says_what_it_knows() -> None:
    desk = Desk(record_of(nodes_of(A, B), A, B))
    desk.keeper.send_if_due(200.0)
    desk.ask(REMOVE, "b")
    desk.keeper.members.end()
    desk.keeper.failed()
    desk.ask(REMOVE, "b")
    desk.keeper.send_if_due(200.0)
    desk.keeper.members.end()
    assert desk.told == [HANDED_OVER, UNKNOWN]


def test_a_change_that_can_land_no_more_was_not_made() -> None:
    """Another version was met by what it went with; or nothing of it was sent, only what another change went with."""
    desk = Desk(record_of(nodes_of(A, B, C), A, B, C))
    desk.ask(REMOVE, "c")
    desk.keeper.conflict(replace(desk.keeper.record, version=6, ready=(A, C)))
    desk.keeper.members.end()
    assert desk.told == [HANDED_OVER]
    desk = Desk(record_of(nodes_of(A, B, C), A, B, C))
    desk.ask(MOVE, "c", "elsewhere", 9)
    desk.stored()
    desk.keeper.send_if_due(200.0)
    desk.ask(REMOVE, "c")
    desk.keeper.members.end()
    assert desk.told == [None, HANDED_OVER]


def test_no_change_goes_with_the_lease() -> None:
    desk = Desk(record_of(nodes_of(A, B), A, B))
    desk.keeper.send_if_due(200.0)
    desk.ask(REMOVE, "b")
    desk.keeper.release("b", 200.0)
    desk.stored()
    desk.keeper.send_if_due(200.0)
    assert desk.wished.released and desk.wished.ready == (A, B)


def test_there_is_room_for_so_many_members_and_removed_stores() -> None:
    many = tuple(ClusterNode(f"n{number}", "h", 1 + number) for number in range(MOST_MEMBERS))
    with pytest.raises(ChangeRefused, match=f"{MOST_MEMBERS} members"):
        changed(Membership(1, many), MemberChange(ADD, "more", "h", 500), ())
    removed = tuple(Member("x", str(number)) for number in range(MOST_REMOVED))
    found = changed(Membership(1, nodes_of(A, B), removed), MemberChange(REMOVE, "b"), ())
    assert len(found.removed) == MOST_REMOVED and found.removed[-1] == B and removed[0] not in found.removed


def test_record_rewritten_without_members() -> None:
    """No store takes such a record, whoever writes it."""
    store = MemoryCoordination()
    first = store.compare_and_set(0, record_of(nodes_of(A, B), A, B))
    assert not may_follow(replace(first, membership=msgspec.UNSET), first)
    with pytest.raises(CasConflict):
        store.compare_and_set(1, replace(first, membership=msgspec.UNSET))
    with pytest.raises(CasConflict):
        store.compare_and_set(1, replace(first, membership=Membership(6, nodes_of(A, B))))
    assert store.compare_and_set(1, replace(first, membership=Membership(8, nodes_of(A, B)))).version == 2


def test_a_record_without_members_is_encoded_as_ever() -> None:
    assert b"membership" not in msgspec.json.encode(Record("c", 5, 3, A, (A,)))
    record = record_of(nodes_of(A, B), A, B)
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record


def test_a_node_that_is_forced_counts_with_its_store() -> None:
    other = Member("b", "b2")
    found = membership_of(with_ready_bound(record_of((*nodes_of(A), *nodes_of(B, counts=False)), other)))
    assert found is not None and found.find("b") == ClusterNode("b", "b", 2, True, "b2")
