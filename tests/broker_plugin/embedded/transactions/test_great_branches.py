"""Take-overs with prepared branches that dequeue very much: as much in a turn as it has room for, then clients come."""

from __future__ import annotations

import itertools

import pytest

from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.turn import STEPS
from broker_plugin.embedded.queues.windows import WindowLimits
from broker_plugin.embedded.transactions import branch_table
from tests.broker_plugin.embedded.cluster_harness import ClusterHarness
from tests.broker_plugin.embedded.harness import queue_of
from tests.broker_plugin.embedded.transactions.test_locked_messages import X
from txobserver.events import Removal
from txobserver.invariants import CHECKS
from txobserver.outcomes import XaStatus

MANY = 2 * STEPS + 10


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ClusterHarness:
    """A branch that dequeues MANY of MANY + 5 messages is prepared, and this node has just become primary."""
    monkeypatch.setattr(branch_table, "LOOKS_A_STEP", 1)
    harness = ClusterHarness(WindowLimits())
    client = harness.client()
    client.declare("q")
    client.publish("q", *[b"%d" % number for number in range(MANY + 5)])
    harness.settle()
    client.channel.qos(MANY, False)
    client.channel.consume("q", "c", False, False, {})
    harness.settle()
    client.channel.mode.select_dtx()
    client.channel.mode.start_branch(X, False, False)
    client.channel.ack(client.deliveries[-1].tag, True)
    client.channel.mode.end_branch(X, False, False)
    answers: list[XaStatus] = []
    harness.broker.operations.branches.prepare(client.channel, X, answers.append)
    harness.settle()
    assert answers == [XaStatus.OK]
    harness.crash(True)
    become_primary(harness.broker)
    return harness


def become_primary(broker: EmbeddedBroker) -> None:
    """Anew, with no turn behind it."""
    ledger, content = broker.ledger, broker.content
    broker.on_inactive("the lease is lost")
    broker.on_active(ledger, content)


def test_locked_piece_by_piece_and_clients_come_then(harness: ClusterHarness) -> None:
    """``take_over_of_great_branches``: 300,000 locked messages cost a new primary a turn of 0.3 s, two million its
    lease, and so did the next one's."""
    broker = harness.broker
    locked = [len(queue_of(harness).offsets_out())]
    assert locked[0] <= STEPS and broker.branches.loading
    while broker.branches.loading:
        with pytest.raises(AmqpError, match="connect again") as error:
            harness.connect()
        assert error.value.code == 320
        broker.end_of_turn()
        locked.append(len(queue_of(harness).offsets_out()))
    assert locked[-1] == MANY and max(b - a for a, b in itertools.pairwise(locked)) <= STEPS
    client = harness.client()
    assert client.count("q") == 5
    assert client.drain("q") == [b"%d" % number for number in range(MANY, MANY + 5)]


@pytest.mark.parametrize("commit", [False, True])
def test_decided_by_an_operator_meanwhile(
    harness: ClusterHarness, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leaves the queue, or comes back, is locked before."""
    monkeypatch.setattr(CHECKS, "on", False)
    broker, queue = harness.broker, queue_of(harness)
    (branch,) = harness.content.branches()
    assert broker.branches.loading
    if commit:
        broker.on_removed(queue.number, branch.locked[queue.number], Removal.ACKED)
    broker.on_branch_ended(branch, commit)
    while harness.cluster.due:
        harness.cluster.due.clear()
        broker.end_of_turn()
    assert queue.offsets_out() == []
    assert queue.ready == queue.total == (5 if commit else MANY + 5)


def test_the_next_one_comes_meanwhile(harness: ClusterHarness) -> None:
    former = harness.broker.branches
    become_primary(harness.broker)
    while harness.broker.branches.loading:
        harness.broker.end_of_turn()
    assert former.loading, "it stops in the middle"
    assert harness.client().count("q") == 5
