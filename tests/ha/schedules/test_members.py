"""Members in the record: what the nodes of a cluster make of it, those that do not belong too (``ha.outside``)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ha.effects import Send
from ha.membership.belonging import membership_of
from ha.membership.member_changes import UNKNOWN
from ha.membership.members import ADD, MOVE, REMOVE, ClusterNode, MemberChange, Membership
from ha.messages.attaching import Join
from ha.messages.election import Probe, ProbeReply
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.outside import Outside
from ha.refusals import NOT_ACTIVE
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import backups_of
from txobserver.actions import MEMBERS_FLAG
from txobserver.ids import Member, Position


class MembersCluster(MemoryCluster):
    """All nodes know of members, and the record says that they are a, b and c. ``said``: what operators are told."""

    features = frozenset({MEMBERS_FLAG})

    def __init__(self, **settings: Any) -> None:
        super().__init__(3, **settings)
        self.said: list[str | None] = []
        self.settled()
        nodes = tuple(
            ClusterNode(each.name, each.name, 5, True, each.member.incarnation) for each in self.nodes.values()
        )
        self.rewrite(Membership(1, nodes))
        self.run(lambda: all(membership_of(each.core.record) is not None for each in self.nodes.values()))

    def rewrite(self, membership: Membership, **fields: Any) -> None:
        """The record, by a hand that need not ask the primary."""
        current: Any = self.coordination.record
        self.coordination.compare_and_set(current.version, replace(current, membership=membership, **fields))

    @property
    def membership(self) -> Membership:
        found = membership_of(self.coordination.record)
        assert found is not None
        return found

    def ask(self, node: MemoryNode, kind: str, name: str, host: str = "", port: int = 0) -> None:
        change = MemberChange(kind, name, host, port)
        node.report(lambda: node.core.change_members(change, self.said.append))

    def changed(self, node: MemoryNode, kind: str, name: str, host: str = "", port: int = 0) -> str | None:
        before = len(self.said)
        self.ask(node, kind, name, host, port)
        self.run(lambda: len(self.said) > before)
        return self.said[-1]


@pytest.fixture
def cluster() -> MembersCluster:
    return MembersCluster()


def test_a_change_is_asked_for_at_any_node(cluster: MembersCluster) -> None:
    b, c = backups_of(cluster)
    assert cluster.changed(c, MOVE, "c", "elsewhere", 6) is None
    assert cluster.changed(b, ADD, "d", "d", 5) is None
    assert cluster.changed(cluster.primary, REMOVE, "d") is None
    assert cluster.membership.number == 4 and cluster.membership.find("c") == ClusterNode(
        "c", "elsewhere", 6, True, "c1"
    )


def test_a_node_that_is_removed_stays_out_and_stands_not(cluster: MembersCluster) -> None:
    """Whatever it is asked: by an operator who accepts the loss of data, too, and when all others are gone."""
    b, c = backups_of(cluster)
    assert cluster.changed(b, REMOVE, "c") is None
    cluster.run(lambda: isinstance(c.core.role, Outside))
    assert c.state == "joining" and "refused until it is discarded" in str(c.core.waits_for_operator)
    assert [line for line in c.lines if "c was removed" in line and "by the primary" not in line]
    cluster.run(lambda: cluster.primary.core.record.ready == (cluster.primary.member, b.member))  # type: ignore[union-attr]
    cluster.pause(3)
    for name in ("a", "b"):
        cluster.kill(name)
    cluster.pause(10)
    why = c.core.waits_for_operator
    assert c.core.promote(True) == why == c.core.promote(False) and c.state == "joining"
    assert len([line for line in c.lines if line == why]) == 1, "once, whatever else the record says later"


def test_a_node_outside_hears_why_anew_when_that_changes(cluster: MembersCluster) -> None:
    c = backups_of(cluster)[1]
    cluster.changed(cluster.primary, REMOVE, "c")
    cluster.run(lambda: isinstance(c.core.role, Outside))
    cluster.rewrite(replace(cluster.membership, number=3, removed=()))
    cluster.run(lambda: membership_of(cluster.primary.core.record) == cluster.membership)
    assert "is no member" in str(c.core.waits_for_operator)
    cluster.changed(cluster.primary, ADD, "c", "c", 5)
    cluster.run(lambda: c.state == "ready")
    assert c.core.waits_for_operator is None


def test_what_a_node_says_that_is_no_member_is_of_no_account(cluster: MembersCluster) -> None:
    """Neither to a member nor, whoever says it, to a node that is none itself."""
    b, c = backups_of(cluster)
    cluster.changed(b, REMOVE, "c")
    cluster.run(lambda: isinstance(c.core.role, Outside) and membership_of(b.core.record) == cluster.membership)
    for node, peer in ((b, "c"), (c, "b")):
        node.core.take_effects()
        node.core.on_message(peer, Probe(node.core.generation, 1))
        assert not [each for each in node.core.take_effects() if isinstance(each, Send)]
    b.core.on_message("a", Probe(b.core.generation, 1))
    assert [each for each in b.core.take_effects() if isinstance(each, Send) and isinstance(each.message, ProbeReply)]


def test_a_joiner_that_no_member_is_gets_no_attachment(cluster: MembersCluster) -> None:
    primary = cluster.primary
    primary.core.on_message("d", Join(primary.core.generation, 1, Member("d", "d1"), [], Position(0, 0), 0, False))
    assert not [each for each in primary.core.take_effects() if isinstance(each, Send)]


def test_a_backup_that_is_removed_tells_who_waits_for_it(cluster: MembersCluster) -> None:
    """The attachment ends with the record that says so, and what was asked in it gets no answer."""
    c = backups_of(cluster)[1]
    cluster.lose = lambda source, target, message: target == "c"
    cluster.ask(c, MOVE, "b", "elsewhere", 6)
    cluster.ask(c, MOVE, "c", "elsewhere", 7)
    cluster.changed(cluster.primary, REMOVE, "c")
    cluster.run(lambda: isinstance(c.core.role, Outside))
    assert cluster.said.count(UNKNOWN) == 2 and c.state == "joining" and c.core.handed_over is None


def test_an_answer_that_comes_behind_the_attachment_is_not_told_any_more(cluster: MembersCluster) -> None:
    """Who has asked was told that nothing is known."""
    core = backups_of(cluster)[1].core
    core.change_members(MemberChange(MOVE, "b", "elsewhere", 6), cluster.said.append)
    (asked,) = (
        each.message for each in core._effects if isinstance(each, Send) and isinstance(each.message, MemberAsk)
    )
    core.relay.lost()
    core.on_message(cluster.primary.core.member.node, MemberTold(core.generation, asked.number, None))
    assert cluster.said == [UNKNOWN]


def test_who_becomes_primary_asks_no_other_for_a_change(cluster: MembersCluster) -> None:
    node, current = backups_of(cluster)[0], cluster.coordination.record
    assert current is not None
    core = node.core
    core.change_members(MemberChange(REMOVE, "c"), cluster.said.append)
    assert any(isinstance(each, Send) and isinstance(each.message, MemberAsk) for each in core._effects)
    core._promoted(replace(current, generation=current.generation + 1, primary=core.member), core.now)
    assert not any(isinstance(each, Send) and isinstance(each.message, MemberAsk) for each in core._effects)
    assert cluster.said == [UNKNOWN]
    core.change_members(MemberChange(REMOVE, "c"), cluster.said.append)
    core.on_message("c", MemberAsk(core.generation, 9, REMOVE, "b", "", 0))
    told = [each.message for each in core._effects if isinstance(each, Send) and isinstance(each.message, MemberTold)]
    assert cluster.said[1:] == [NOT_ACTIVE] and [each.error for each in told] == [NOT_ACTIVE], "not before it serves"


def test_a_change_that_a_node_of_a_later_generation_asks_for_is_not_taken(cluster: MembersCluster) -> None:
    """The record will tell the primary soon that it is none."""
    core = cluster.primary.core
    core.on_message("b", MemberAsk(core.generation + 1, 9, REMOVE, "c", "", 0))
    assert core.leading is not None and not core.leading.keeper.members.wanted


def test_a_node_asked_for_its_own_removal_says_that_it_was_removed(cluster: MembersCluster) -> None:
    """The primary ends its attachment in that very turn, and the answer may come behind that, or not at all."""
    _, c = backups_of(cluster)
    cluster.lose = lambda source, target, message: target == "c" and isinstance(message, MemberTold)
    assert cluster.changed(c, REMOVE, "c") is None
    assert isinstance(c.core.role, Outside) and cluster.membership.find("c") is None
