"""Great transactions at the broker: their ends take many turns, and no client sees half of one.

What a turn does is asserted in counted steps, never in times.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.turn import LOOKS_A_STEP, STEPS, Turn
from broker_plugin.embedded.queues.windows import WindowLimits
from broker_plugin.embedded.transactions.work_pieces import Freeing
from tests.broker_plugin.embedded.cluster_harness import BrokerCluster, ClusterHarness
from tests.broker_plugin.embedded.harness import Client, Harness, got
from txobserver.events import Message, TxDecision
from txobserver.invariants import CHECKS
from txobserver.outcomes import XaStatus
from txobserver.xid import Xid

MANY = 2 * STEPS + 500
XID = Xid(1, b"g", b"b")


class TwoQueues(ClusterHarness):
    """Three nodes whose turns apply five messages; queue q holds ``first`` and ``second``, r holds nothing."""

    def __init__(self) -> None:
        self.cluster = BrokerCluster(3, WindowLimits(), checkpoint_every=0.5, apply_steps=5)
        self.cluster.settled()
        self._serve()
        self.looker = self.client()
        for name in ("q", "r"):
            self.looker.declare(name)
        self.looker.publish("q", b"first", b"second")
        self.settle()

    def look(self) -> tuple[int, int]:
        """What declarations tell, without a turn."""
        states: list[Any] = []
        for name in ("q", "r"):
            self.broker.operations.queues.declare_passive(self.looker.channel, name, states.append)
        return states[0].messages, states[1].messages

    @property
    def in_parts(self) -> bool:
        """Whether a decision is; what a consumer settles may be, too."""
        replica = self.node.core.replica
        return replica.in_parts and isinstance(replica._unapplied[0][2], TxDecision)


@pytest.fixture
def two() -> TwoQueues:
    return TwoQueues()


def test_consumers_gets_and_counts_see_all_of_a_decision_or_nothing(two: TwoQueues) -> None:
    """``half_a_decision_is_handed_out``: a get waits for the end of it, consumers too, and counts are those before."""
    client, taker = two.client(), two.client()
    client.channel.mode.select_tx()
    client.channel.ack(got(client.get("q")).delivery_tag, False)
    for number in range(30):
        client.publish("q", b"%d" % number)
        client.publish("r", b"%d" % number)
    taker.channel.consume("r", "c", True, False, {})
    two.settle()
    answers, asked, seen = client.ask_commit(), list[Any](), list[Any]()
    for _ in range(200):
        two.node.report(lambda: None)
        if two.in_parts:
            if not asked:
                asked.append(taker.ask_get("q", True))
            seen.append(two.look())
            assert not answers and not taker.deliveries
        two.cluster.turn()
    assert len(seen) > 2 and set(seen) == {(1, 0)}
    two.settle()
    assert answers == ["ok"] and got(asked[0][0]).message.body == b"second"
    assert taker.bodies == [b"%d" % number for number in range(30)] and two.look() == (30, 0)


def test_a_purge_that_is_asked_for_in_the_middle_comes_behind_all_of_it(two: TwoQueues) -> None:
    client = two.client()
    client.channel.mode.select_tx()
    for number in range(40):
        client.publish("r", b"%d" % number)
    two.settle()
    client.ask_commit()
    purged: list[int] = []
    asked = False
    for _ in range(200):
        two.node.report(lambda: None)
        if two.in_parts and not asked:
            asked = True
            two.broker.operations.queues.purge(two.looker.channel, "r", purged.append)
            assert not purged
        two.cluster.turn()
    two.settle()
    assert purged == [40] and two.look() == (2, 0)


def test_a_take_over_in_the_middle_of_a_decision_brings_all_of_it(two: TwoQueues) -> None:
    client = two.client()
    client.channel.mode.select_tx()
    for number in range(40):
        client.publish("r", b"%d" % number)
    two.settle()
    client.ask_commit()
    two.cluster.run(lambda: two.in_parts)
    two.crash(False)
    two.looker = two.client()
    two.settle()
    assert two.look() == (2, 40)


# -- the ends of units of work


class Work:
    """A client that has taken everything out of local and durable queues, in a harness without invariants' cost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = MANY) -> None:
        monkeypatch.setattr(CHECKS, "on", False)
        self.harness = Harness()
        self.client, self.other = self.harness.client(), self.harness.client()
        self.client.declare("l", durable=False)
        self.client.declare("m", durable=False)
        for name in ("l", "m"):
            self.client.publish(name, *[b"x"] * count)
        self.harness.settle()

    def take_all(self, client: Client, name: str, count: int) -> None:
        client.channel.consume(name, name, False, False, {})
        self.harness.settle()
        client.channel.cancel(name)
        assert len(client.deliveries) >= count

    def counts(self) -> tuple[int, int]:
        queues = self.harness.broker.topology.queues
        return queues["l"].ready, queues["m"].ready

    def turns(self) -> list[tuple[int, int]]:
        """The counts after each turn, until nothing is left to do."""
        seen = [self.counts()]
        while self.harness._due or self.harness.ledger.busy:
            self.harness.turn()
            self.harness.ledger.commit()
            seen.append(self.counts())
        assert self.harness.broker.turn.longest <= 2 * STEPS + 200
        return seen


def test_a_commit_brings_this_node_s_own_queues_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Piece by piece, and what it gives back as well; the answer comes last."""
    work = Work(monkeypatch)
    work.take_all(work.client, "l", MANY)
    work.client.channel.mode.select_tx()
    work.client.channel.reject(0, True, True)
    work.client.publish("m", *[b"y"] * MANY)
    work.turns()
    assert work.counts() == (0, MANY)
    answers = work.client.ask_commit()
    assert not answers
    seen = work.turns()
    assert set(seen) == {(0, MANY), (MANY, 2 * MANY)} and len(seen) > 4 and answers == ["ok"]


@pytest.mark.plain
def test_a_commit_to_many_of_this_node_s_own_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message to many queues is many steps: a thousand of them were one turn."""
    monkeypatch.setattr(CHECKS, "on", False)
    harness = Harness()
    client, pieces = harness.client(), list[int]()
    operations = harness.broker.operations
    operations.exchanges.declare(client.channel, ExchangeDeclare("e", "fanout", False), lambda: None)
    for number in range(100 * LOOKS_A_STEP):
        client.declare(f"l{number}", durable=False)
        operations.bindings.bind(client.channel, BindRequest("e", f"l{number}", True, ""), lambda: None)
    client.channel.mode.select_tx()
    for _ in range(STEPS // 4):
        client.channel.publish("e", "", False, b"", b"m")
    harness.settle()
    queue, enqueue = harness.broker.topology.queues["l0"], LocalQueue.enqueue
    assert isinstance(queue, LocalQueue)

    def counted(self: LocalQueue, message: Message) -> None:
        if self is queue:
            pieces[-1] += 1
        enqueue(self, message)

    monkeypatch.setattr(LocalQueue, "enqueue", counted)
    pieces.append(0)
    answers = client.ask_commit()
    while not answers:
        pieces.append(0)
        harness.turn()
        harness.ledger.commit()
    assert sum(pieces) == STEPS // 4 == queue.ready and max(pieces) <= STEPS // 100


@pytest.mark.parametrize("how", ["failed", "rolled back", "channel ends"])
def test_a_branch_gives_back_everything_at_once(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """``a_branch_gives_back_in_one_go``: piece by piece, in as many turns as it takes, and its answer comes last."""
    monkeypatch.setattr(CHECKS, "on", False)
    two = ClusterHarness(WindowLimits())
    client = two.client()
    client.declare("q")
    client.publish("q", *[b"x"] * MANY)
    two.settle()
    client.channel.mode.select_dtx()
    client.channel.mode.start_branch(XID, False, False)
    client.channel.consume("q", "c", False, False, {})
    two.cluster.run(lambda: len(client.deliveries) == MANY)
    client.channel.cancel("c")
    client.channel.ack(0, True)
    two.settle()
    answers: list[XaStatus] = []
    turn, queue = two.broker.turn, two.broker.topology.queues["q"]
    if how == "rolled back":
        client.channel.mode.end_branch(XID, False, False)
        two.broker.operations.branches.prepare(client.channel, XID, answers.append)
        two.settle()
        assert answers == [XaStatus.OK]
        turn.begin()
        turn.longest = 0
        two.broker.operations.branches.rollback(client.channel, XID, answers.append)
    else:
        turn.begin()
        turn.longest = 0
        if how == "failed":
            client.channel.mode.end_branch(XID, True, False)
        else:
            client.channel.close()
    seen = {queue.ready}
    while queue.ready != MANY:
        two.cluster.turn()
        seen.add(queue.ready)
        assert how != "rolled back" or len(answers) == (2 if queue.ready else 1)
    assert seen == {0, MANY} and 0 < turn.longest <= 2 * STEPS


@pytest.mark.plain
def test_a_branch_that_has_ended_frees_its_consumers_once() -> None:
    """What is left of them when it ends is freed by its end: each would be given more than it may hold."""
    restored: list[int] = []
    over = False
    work = Turn(lambda: None)
    held = [(tag, (None, tag, SimpleNamespace(restore=lambda t=tag: restored.append(t))), None) for tag in range(MANY)]
    settled: Any = list(held)
    Freeing(work, settled, lambda: over, lambda: restored.append(-1)).run()
    work.run()
    assert restored == list(range(2 * STEPS)) and all(each[1][2] is None for each in settled[: 2 * STEPS])
    over = True
    work.run()
    assert len(restored) == 2 * STEPS and settled[2 * STEPS :] == held[2 * STEPS :]
