"""A broker in another process: transactions, branches, configuration and readings across the wire, and take-overs."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from broker_plugin.host.from_broker import (
    AskPublish,
    AskSettle,
    Attach,
    BeginWork,
    EndWork,
    FromBroker,
    GrantCredit,
    WorkEnd,
)
from broker_plugin.host.from_node import (
    Answer,
    Deactivated,
    LeaseUntil,
    MessageEnqueued,
    MessagesArriving,
    MessagesRemoved,
    WatermarkRaised,
)
from broker_plugin.host.remote_broker import RemoteBroker
from broker_plugin.host.wire import MAX_MESSAGE, decode_from_node, messages_in
from tests.broker_plugin.host.across import answered, far_cluster, text
from txobserver.configuration import Refusal, delete_queue_step
from txobserver.events import Removal, Terms
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import Found
from txobserver.ports.store import Above, At
from txobserver.xid import Xid

XID = Xid(1, b"g", b"b")


def test_a_transaction_is_whole_and_outlives_its_primary() -> None:
    """P1, P2: visible at its commit in both queues, and at the next primary's broker."""
    cluster = far_cluster("q", "r")
    broker = cluster.far
    assert broker.ledger
    transaction = broker.ledger.begin(broker.note("begin"), b"token")
    for name in ("q", "r"):
        transaction.enqueue([broker.number(name)], text("t"))
    cluster.pause(0.2)
    assert broker.bodies("q") == broker.bodies("r") == []
    transaction.commit(broker.note("commit"))
    assert answered(cluster, broker, "begin", "commit") == ["ok", "ok"]
    assert broker.bodies("q") == broker.bodies("r") == ["t"]
    cluster.kill(cluster.primary.name)
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    cluster.run(lambda: cluster.far.ledger is not None)
    after, found = cluster.far, []
    assert after is not broker and after.ledger
    for name in ("q", "r"):
        after.ledger.read(Above(after.number(name), 0, 10, 1000), found.append)
    cluster.run(lambda: len(found) == 2)
    assert [[entry.message.body for _, entry in each.entries] for each in found] == [[b"t"], [b"t"]]
    outcomes: list[BranchOutcome] = []
    after.ledger.outcome_of_token(b"token", outcomes.append)
    cluster.run(lambda: bool(outcomes))
    assert outcomes == [BranchOutcome.COMMITTED]


def test_a_rollback_leaves_nothing() -> None:
    """P4."""
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    transaction = broker.ledger.begin(broker.note("begin"))
    transaction.enqueue([broker.number("q")], text("never"))
    transaction.rollback(broker.note("rollback"))
    assert answered(cluster, broker, "rollback") == ["ok"]
    broker.ledger.publish([broker.number("q")], text("after"), broker.note("confirm"))
    assert answered(cluster, broker, "confirm") == ["ok"]
    assert broker.bodies("q") == ["after"]


def test_what_is_dequeued_leaves_at_the_commit() -> None:
    """P1: acknowledgements are in the transaction."""
    cluster = far_cluster("q", "r")
    broker = cluster.far
    assert broker.ledger
    broker.ledger.publish([broker.number("q")], text("in"), broker.note("in"))
    answered(cluster, broker, "in")
    transaction = broker.ledger.begin(broker.note("begin"))
    transaction.dequeue(broker.number("q"), broker.entries("q"))
    transaction.enqueue([broker.number("r")], text("out"))
    cluster.pause(0.2)
    assert broker.bodies("q") == ["in"]
    transaction.commit(broker.note("commit"))
    answered(cluster, broker, "commit")
    assert (broker.bodies("q"), broker.bodies("r")) == ([], ["out"])


def test_nothing_is_answered_once_the_activation_is_over() -> None:
    """P6: what is outstanding at a step-down is unknown, also when it is committed by the next primary."""
    cluster = far_cluster("q")
    broker, old = cluster.far, cluster.primary
    assert broker.ledger
    transaction = broker.ledger.begin(broker.note("begin"))
    transaction.enqueue([broker.number("q")], text("t"))
    answered(cluster, broker, "begin")
    transaction.commit(broker.note("commit"))
    cluster.turn()
    cluster.partition(old.name)
    cluster.storeless.add(old.name)
    cluster.run(lambda: bool(broker.closed))
    cluster.heal()
    cluster.storeless.clear()
    cluster.settled()
    assert "commit" not in broker.answers
    assert broker.ledger.lease_until == 0


def test_a_request_of_an_earlier_activation_is_dropped() -> None:
    """``request_of_an_earlier_activation``: it was sent before the broker heard of the next one."""
    cluster = far_cluster("q")
    far = cluster.fars[cluster.primary.name]
    first = cluster.primary.name
    far.held = True
    assert far.broker.ledger
    far.broker.ledger.publish([far.broker.number("q")], text("late"), far.broker.note("late"))
    cluster.storeless.add(first)
    cluster.run(lambda: bool(far.broker.closed))
    cluster.storeless.clear()
    cluster.settled()
    node = cluster.nodes[first]
    cluster.run(lambda: node.core.promote(False) is None)
    node.report(lambda: None)
    cluster.run(lambda: node.state == "active")
    far.held = False
    cluster.pause(0.5)
    assert far.broker.bodies("q") == [] and "late" not in far.broker.answers


def test_a_branch_is_prepared_locked_and_decided() -> None:
    """P2, P6: and the branch stands at the next primary's broker."""
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    broker.ledger.publish([broker.number("q")], text("in"), broker.note("in"))
    answered(cluster, broker, "in")
    branch = broker.ledger.begin_branch(XID, broker.note("begin"))
    branch.dequeue(broker.number("q"), broker.entries("q"))
    branch.prepare(broker.note("prepare"))
    assert answered(cluster, broker, "begin", "prepare") == ["ok", "ok"]
    assert list(broker.prepared) == [XID] and broker.bodies("q") == ["in"]
    cluster.kill(cluster.primary.name)
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    cluster.run(lambda: cluster.far.ledger is not None)
    after = cluster.far
    assert list(after.prepared) == [XID]
    assert after.ledger
    after.ledger.decide_branch(XID, True, False, after.note("decide"))
    assert answered(cluster, after, "decide") == ["ok"]
    assert after.prepared == {}
    outcomes: list[BranchOutcome] = []
    after.ledger.outcome(XID, outcomes.append)
    cluster.run(lambda: bool(outcomes))
    assert outcomes == [BranchOutcome.COMMITTED]


def test_a_name_that_is_in_use_is_refused_and_its_work_with_it() -> None:
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    broker.ledger.begin_branch(XID, broker.note("first"))
    second = broker.ledger.begin_branch(XID, broker.note("second"))
    second.enqueue([broker.number("q")], text("never"))
    second.commit_one_phase(broker.note("commit"))
    first, refused, commit = answered(cluster, broker, "first", "second", "commit")
    assert first == "ok" and "is in use" in refused and "was not begun" in commit
    cluster.pause(0.2)
    assert broker.bodies("q") == []


def test_a_condition_is_judged_where_it_is_applied_and_told_as_a_refusal() -> None:
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    broker.ledger.publish([broker.number("q")], text("m"), broker.note("m"))
    told: list[str | None] = []
    broker.ledger.configure(delete_queue_step("q", Terms(empty=True)), told.append)
    cluster.run(lambda: bool(told))
    assert told == [Refusal.NOT_EMPTY] and isinstance(told[0], Refusal)
    assert broker.refusals == ["not empty"]


def test_settled_purged_and_read() -> None:
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    number = broker.number("q")
    for count in range(5):
        broker.ledger.publish([number], text(f"{count}"), broker.note(f"{count}"))
    answered(cluster, broker, "4")
    first, second, *_ = broker.entries("q")
    broker.ledger.settle(number, [first], Removal.ACKED)
    broker.ledger.purge(number, (1 << 63) - 1, [second], broker.note("purge"))
    answered(cluster, broker, "purge")
    assert broker.bodies("q") == ["1"]
    found: list[Found] = []
    broker.ledger.read(At(number, (first[0], second[0]), 1000), found.append)
    cluster.run(lambda: bool(found))
    assert [(offset, entry.rid) for offset, entry in found[0].entries] == [second]


def test_credit_that_is_granted_ahead_raises_the_watermark_with_the_message() -> None:
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    number = broker.number("q")
    broker.ledger.grant(number, 1, 0)
    cluster.pause(0.1)
    broker.ledger.publish([number], text("m"), broker.note("m"))
    cluster.run(lambda: bool(broker.watermarks.get(number)))
    assert broker.watermarks[number] == broker.entries("q")[0][0]
    broker.ledger.publish([number], text("n"), broker.note("n"))
    answered(cluster, broker, "n")
    cluster.pause(0.2)
    assert broker.watermarks[number] < broker.entries("q")[1][0], "there was no credit for it"
    broker.ledger.raise_watermark(number, broker.entries("q")[1][0])
    cluster.run(lambda: broker.watermarks[number] == broker.entries("q")[1][0])
    assert sum(isinstance(each, WatermarkRaised) for each in broker.told) == 2


def test_a_publish_to_a_queue_that_has_gone_meanwhile_is_confirmed() -> None:
    """As one that no queue is bound for: the broker could not know."""
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    number = broker.number("q")
    broker.ledger.configure(delete_queue_step("q"), broker.note("delete"))
    answered(cluster, broker, "delete")
    broker.ledger.publish([number], text("m"), broker.note("m"))
    assert answered(cluster, broker, "m") == ["ok"]


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (AskPublish(1, 1, [7], text("m")), "queue 7, which was never declared"),
        (AskSettle(1, 0, 0, [], 1), "queue 0, which was never declared"),
        (AskPublish(2, 1, [], text("m")), "names activation 2, and 1 is the last"),
        (BeginWork(1, 0, 1), "names no request"),
        (Attach(1, "again", "127.0.0.1", 1), "attaches a second time"),
        (GrantCredit(1, 0, 9, 1, 0), "queue 9, which was never declared"),
    ],
)
def test_what_no_broker_may_ask(ask: FromBroker, why: str) -> None:
    cluster = far_cluster("q")
    remote: RemoteBroker = cluster.fars[cluster.primary.name].remote
    with pytest.raises(ValueError, match=why):
        remote.take(ask)


def test_a_transaction_is_begun_once_and_a_plain_one_is_not_prepared() -> None:
    cluster = far_cluster()
    remote: RemoteBroker = cluster.fars[cluster.primary.name].remote
    remote.take(BeginWork(1, 1, 5))
    with pytest.raises(ValueError, match="begins transaction 5 twice"):
        remote.take(BeginWork(1, 2, 5))
    with pytest.raises(ValueError, match="prepares a transaction that is no branch"):
        remote.take(EndWork(1, 3, 5, WorkEnd.PREPARE))


def test_each_answer_says_what_has_been_applied() -> None:
    """``since`` of a later question for an outcome."""
    cluster = far_cluster("q")
    broker = cluster.far
    assert broker.ledger
    broker.ledger.publish([broker.number("q")], text("m"), broker.note("m"))
    answered(cluster, broker, "m")
    last = [each for each in broker.told if isinstance(each, Answer)][-1]
    assert last.applied == broker.entries("q")[0][0] or last.applied > 0


def test_a_step_in_parts_is_told_when_it_is_whole() -> None:
    """A broker elsewhere knows of no steps in parts: what comes meanwhile is told behind it, the lease at once. All of
    it is encoded by then (``a_host_is_told_a_great_decision_in_one_turn``)."""
    said: list[object] = []
    pieces: list[bytes] = []

    def say_encoded(data: bytes) -> None:
        pieces.append(data)
        said.extend(decode_from_node(each) for each in messages_in(bytearray(data), MAX_MESSAGE))

    remote = RemoteBroker(said.append, say_encoded)
    remote.on_step_begins()
    remote.on_enqueued(1, 10, 5, text("m"))
    remote.lease(7.5)
    remote.on_removed(2, [(3, 4)], Removal.ACKED)
    remote.on_arriving(1, 2)
    assert said == [LeaseUntil(7.5)]
    with patch("broker_plugin.host.remote_broker.framed", side_effect=AssertionError("encoded at the end")):
        remote.on_step_ends()
        remote.on_watermark(1, 10)
    kinds = [LeaseUntil, MessageEnqueued, MessagesRemoved, MessagesArriving, WatermarkRaised]
    assert [type(each) for each in said] == kinds and len(pieces) == 1


def test_a_step_that_the_end_of_the_activation_cuts_off_is_not_told() -> None:
    said: list[object] = []
    remote = RemoteBroker(said.append, lambda data: said.append(data))
    remote.on_step_begins()
    remote.on_enqueued(1, 10, 5, text("m"))
    remote.on_inactive("the lease is lost")
    assert [type(each) for each in said] == [Deactivated]
    remote.on_enqueued(1, 10, 5, text("m"))
    assert [type(each) for each in said] == [Deactivated, MessageEnqueued], "the next activation is told at once"
