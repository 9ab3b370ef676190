"""Named schedules about credit: of a host that grants it ahead, as a broker in another process does, or too late."""

from __future__ import annotations

from tests.support.branch_steps import ledger_of
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import answered, backups_of, begin_t, commit, declared, publish, survivors_agree
from txobserver.configuration import delete_queue_step
from txobserver.events import Delivered, Event, Publish


def published(cluster: MemoryCluster, node: MemoryNode, *bodies: str, queue: str = "q") -> None:
    for body in bodies:
        publish(node, queue, body)
    for body in bodies:
        answered(cluster, node, f"publish {body}")
    cluster.pause(0.1)


def granted(node: MemoryNode, messages: int, queue: str = "q", announced: int | None = None) -> None:
    """Behind all that the host has been told of, or the first ``announced`` of it."""
    number = node.host.number(queue)
    known = node.host.announced.get(number, 0) if announced is None else announced
    node.report(lambda: ledger_of(node).grant(number, messages, known))


def may_be_handed_out(node: MemoryNode, queue: str = "q") -> list[str]:
    """What this primary's consumers may be sent, and the next primary would deliver again."""
    host = node.host
    number = host.number(queue)
    watermark = host.watermarks.get(number, 0)
    return [host.visible[number][at][1].decode() for at in sorted(host.visible[number]) if at <= watermark]


def taken_over(cluster: MemoryCluster) -> MemoryNode:
    """The next primary; the former one has been killed."""
    cluster.kill(cluster.primary.name)
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    return cluster.primary


def stopped_until_another_serves(cluster: MemoryCluster, node: MemoryNode) -> None:
    """This primary gets no processor time until its lease has ended; then it goes on, and joins the next one."""
    cluster.frozen.add(node.name)
    cluster.run(lambda: any(each.state == "active" for each in cluster.nodes.values() if each is not node))
    cluster.frozen.discard(node.name)
    cluster.run(lambda: node.state == "ready")


def frames_with(node: MemoryNode, kind: type[Event]) -> list[int]:
    return [frame.first for frame in node.disk.frames if any(isinstance(each, kind) for each in frame.events())]


def test_credit_that_was_granted_ahead_costs_no_second_round() -> None:
    """The watermark stands in the frame that brings the message."""
    cluster = declared("q")
    primary = cluster.primary
    granted(primary, 2)
    published(cluster, primary, "a")
    assert may_be_handed_out(primary) == ["a"]
    assert frames_with(primary, Delivered)[-1] == frames_with(primary, Publish)[-1]
    published(cluster, primary, "b", "c")
    assert may_be_handed_out(primary) == ["a", "b"], "the third has no credit"


def test_credit_counts_for_what_a_transaction_brings() -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    granted(primary, 1, "r")
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    cluster.pause(0.1)
    assert may_be_handed_out(primary, "r") == ["t"] and may_be_handed_out(primary) == []


def test_credit_that_comes_too_late_is_for_the_next_message() -> None:
    """P3: the watermark may stand behind a message for which none was granted, which the host was told of before."""
    cluster = declared("q")
    primary = cluster.primary
    published(cluster, primary, "a")
    granted(primary, 1)
    cluster.pause(0.1)
    assert may_be_handed_out(primary) == []
    published(cluster, primary, "b", "c")
    assert may_be_handed_out(primary) == ["a", "b"]


def test_credit_for_what_has_passed_unseen() -> None:
    """P3: a host in another process has room for one message, and has not heard of a, which is there already. Its
    credit was spent on b, and the watermark covered both: no consumer could have been sent b."""
    cluster = declared("q")
    primary = cluster.primary
    published(cluster, primary, "a")
    granted(primary, 1, announced=0)
    published(cluster, primary, "b")
    assert may_be_handed_out(primary) == []
    granted(primary, 1, announced=1)
    published(cluster, primary, "c")
    assert may_be_handed_out(primary) == []
    granted(primary, 2, announced=2)
    published(cluster, primary, "d", "e")
    assert may_be_handed_out(primary) == ["a", "b", "c", "d"]
    heir = taken_over(cluster)
    assert may_be_handed_out(heir) == ["a", "b", "c", "d"]


def test_credit_of_a_former_primary_is_not_used_by_the_next_one() -> None:
    """P3: its consumers are gone, so what comes later cannot have been handed out and is not redelivered."""
    cluster = declared("q")
    granted(cluster.primary, 10)
    published(cluster, cluster.primary, "a")
    primary = taken_over(cluster)
    published(cluster, primary, "b")
    assert may_be_handed_out(primary) == ["a"]
    survivors_agree(cluster)


def test_credit_of_one_activation_is_not_used_in_the_next_one_of_the_same_node() -> None:
    cluster = declared("q", size=2)
    former = cluster.primary
    granted(former, 10)
    late = ledger_of(former)
    (other,) = backups_of(cluster)
    stopped_until_another_serves(cluster, former)
    former.report(lambda: late.grant(1, 10, 0))
    stopped_until_another_serves(cluster, other)
    cluster.run(lambda: former.state == "active")
    published(cluster, former, "a")
    assert may_be_handed_out(former) == []


def test_credit_ends_with_its_queue() -> None:
    """A queue that is declared again under the same name begins without, and nothing is kept of the former one."""
    cluster = declared("q")
    primary = cluster.primary
    granted(primary, 5)
    host = primary.host
    primary.report(lambda: ledger_of(primary).configure(delete_queue_step("q"), host.note("delete")))
    answered(cluster, primary, "delete")
    primary.report(lambda: host.declare("q"))
    cluster.run(lambda: len([label for label, _ in host.answers if label == "declare q"]) == 2)
    published(cluster, primary, "a")
    assert may_be_handed_out(primary) == []
    assert primary.core.leading is not None
    assert primary.core.leading.primary._additions._limits == {}


def test_a_watermark_by_credit_is_not_told_before_it_is_durable_where_it_counts() -> None:
    """P2, P3: a backup's acknowledgement is missing."""
    cluster = declared("q")
    primary, _, slow = cluster.primary, *backups_of(cluster)
    granted(primary, 1)
    cluster.held.add((slow.name, primary.name))
    publish(primary, "q", "m")
    cluster.pause(0.5)
    assert may_be_handed_out(primary) == []
    cluster.held.clear()
    answered(cluster, primary, "publish m")
    cluster.run(lambda: may_be_handed_out(primary) == ["m"])
