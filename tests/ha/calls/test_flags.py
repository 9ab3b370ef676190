"""Feature flags: raised when every member has announced them, then for good; and reasons of failures elsewhere."""

from __future__ import annotations

import msgspec

from ha.calls.answers import CallDone, CallNotMade
from ha.calls.initiation import NewCall
from ha.messages.calls import CursorsAsk, NodeCursor
from tests.support.memory_calls import CallsCluster, call_id
from tests.support.memory_cluster import MemoryNode
from txobserver.actions import CERTIFICATES, FLAG, SHIPPED, RaiseFlag, ReloadCertificates
from txobserver.calls import CallMark


class FlagCluster(CallsCluster):
    """With the actions of this release."""

    actions = SHIPPED
    features = frozenset({"calls", "certificates"})

    def ask_for_flag(self, node: MemoryNode, number: int) -> None:
        new = NewCall(call_id(number), FLAG, 1, "calls", msgspec.msgpack.encode(RaiseFlag()), 7)
        done = lambda answer: self.answers.__setitem__(number, answer)  # noqa: E731
        node.report(lambda: node.core.calls.call(new, 0, self.now + 5.0, done))

    def reload(self, node: MemoryNode, number: int) -> object:
        """A call of an action that came later than calls themselves."""
        new = NewCall(call_id(number), CERTIFICATES, 1, "", msgspec.msgpack.encode(ReloadCertificates()), 7)
        done = lambda answer: self.answers.__setitem__(number, answer)  # noqa: E731
        node.report(lambda: node.core.calls.call(new, 0, self.now + 5.0, done))
        return self.answered(number)

    def raise_flag(self, node: MemoryNode, number: int) -> object:
        self.ask_for_flag(node, number)
        return self.answered(number)


def started() -> FlagCluster:
    cluster = FlagCluster(3)
    cluster.settled()
    return cluster


def raised(cluster: FlagCluster) -> list[list[str]]:
    return [node.core.replica.contents.calls.names_of(FLAG) for node in cluster.nodes.values()]


def test_it_is_raised_everywhere_and_once_more_does_nothing() -> None:
    cluster = started()
    assert cluster.raise_flag(cluster.backups()[0], 1) == CallDone(1)
    assert raised(cluster) == [["calls"]] * 3
    assert cluster.raise_flag(cluster.primary, 2) == CallDone(2)


def test_it_waits_for_the_announcement_of_every_member() -> None:
    """Nothing is recorded, and the node that has not announced it is named."""
    cluster = started()
    initiator, other = cluster.backups()
    leading = cluster.primary.core.leading
    assert leading is not None
    cluster.ask_for_flag(initiator, 1)
    cluster.run(lambda: leading.desk.ticket is not None)
    leading.desk._lacking = lambda feature: [other.name]
    answer = cluster.answered(1)
    assert isinstance(answer, CallNotMade) and f"have not announced 'calls', or cannot be reached: {other.name}" in (
        answer.reason
    )
    assert raised(cluster) == [[]] * 3


def test_a_node_that_does_not_know_a_raised_flag_is_not_attached() -> None:
    """It is told so; one that knows it is attached again."""
    cluster = started()
    back = cluster.backups()[0]
    assert cluster.raise_flag(cluster.primary, 1) == CallDone(1)
    features = cluster.primary.core.features
    cluster.kill(back.name)
    cluster.run(lambda: back.name not in features)
    cluster.features = frozenset()
    cluster.start(back.name)
    cluster.run(lambda: back.name in features)
    cluster.pause(2.0)
    assert cluster.nodes[back.name].core.state != "ready"
    cluster.kill(back.name)
    cluster.run(lambda: back.name not in features)
    cluster.features = frozenset({"calls"})
    cluster.start(back.name)
    cluster.run(cluster.all_ready)


def test_an_action_that_some_node_does_not_know_is_not_recorded() -> None:
    """Its record could not be taken there, and the node would be lost to the cluster until it is upgraded."""
    cluster = started()
    leading = cluster.primary.core.leading
    assert leading is not None
    asked: list[str] = []
    leading.desk._lacking = lambda feature: (asked.append(feature), ["b"] if feature == "certificates" else [])[1]
    answer = cluster.reload(cluster.backups()[0], 1)
    assert isinstance(answer, CallNotMade) and "have not announced 'certificates'" in answer.reason
    assert not any(node.core.replica.contents.calls.kept for node in cluster.nodes.values())
    leading.desk._lacking = lambda feature: []
    assert cluster.reload(cluster.backups()[0], 2) == CallDone(1)


def test_a_node_that_does_not_know_an_action_of_which_a_call_is_kept_is_not_attached() -> None:
    cluster = started()
    back = cluster.backups()[0]
    assert cluster.reload(cluster.primary, 1) == CallDone(1)
    features = cluster.primary.core.features
    for known, state in ((frozenset({"calls"}), False), (frozenset({"calls", "certificates"}), True)):
        cluster.kill(back.name)
        cluster.run(lambda: back.name not in features)
        cluster.features = known
        cluster.start(back.name)
        cluster.run(lambda: back.name in features)
        cluster.pause(2.0)
        assert (cluster.nodes[back.name].core.state == "ready") == state


def test_how_far_each_node_is_and_why_is_known_at_any_node() -> None:
    cluster = CallsCluster(3)
    cluster.settled()
    initiator, failing = cluster.backups()
    failing.surroundings.outcome = lambda action: "no room"
    cluster.call(initiator, 1, "l", need=2)
    assert cluster.answered(1) == CallDone(1)
    for node in cluster.nodes.values():
        told: list[list[NodeCursor] | None] = []
        cluster.run(lambda node=node, told=told: failure_of(cluster, node, failing.name, told) == (1, "no room"))
        (rows,) = [told[-1]]
        assert rows is not None and [row.member.node for row in rows] == sorted(cluster.nodes)
        ours = next(row for row in rows if row.member == failing.member)
        assert ours.counts and ours.cursor == CallMark(0, ours.cursor.position)
    failing.surroundings.outcome = lambda action: None
    told = []
    cluster.run(lambda: failure_of(cluster, cluster.primary, failing.name, told) == (0, ""))


def failure_of(
    cluster: CallsCluster, node: MemoryNode, of: str, told: list[list[NodeCursor] | None]
) -> tuple[int, str] | None:
    """As this node is told by the primary, at last."""
    asked = CursorsAsk(node.core.generation, call_id(900 + len(told)))
    node.report(lambda: node.core.calls.cursors(asked, cluster.now + 1.0, told.append))
    cluster.pause(0.2)
    rows = told[-1] if told else None
    return next(((row.failing, row.reason) for row in rows if row.member.node == of), None) if rows else None


def test_nobody_answers_where_there_is_no_primary() -> None:
    cluster = CallsCluster(3)
    cluster.settled()
    node = cluster.backups()[0]
    for name in [each.name for each in cluster.nodes.values() if each is not node]:
        cluster.kill(name)
    told: list[list[NodeCursor] | None] = []
    asked = CursorsAsk(node.core.generation, call_id(1))
    node.report(lambda: node.core.calls.cursors(asked, cluster.now + 1.0, told.append))
    cluster.run(lambda: told == [None])
