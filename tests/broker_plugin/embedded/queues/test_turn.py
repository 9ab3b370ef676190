"""What the broker needs no more is let go of in as many turns as it takes (``Turn.let_go``)."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest

from broker_plugin.embedded.queues.turn import FREED, STEPS, Turn
from tests.broker_plugin.embedded.harness import Client, Harness
from txobserver.invariants import CHECKS
from txobserver.leftovers import RELEASED

pytestmark = pytest.mark.plain
MANY = 3 * RELEASED


class Turns(Turn):
    """Counts how often it is scheduled."""

    def __init__(self) -> None:
        self.asked = 0
        super().__init__(self.ask)

    def ask(self) -> None:
        self.asked += 1


@pytest.mark.parametrize("kind", [list, deque])
def test_many_objects_take_many_turns(kind: type) -> None:
    """``what_a_channel_had_settled_is_let_go_of_in_one_go``: 40 ms for 300,000 messages."""
    turn, great, other = Turns(), kind(range(MANY)), dict.fromkeys(range(STEPS + 1))
    turn.let_go(great)
    turn.let_go(other)
    assert len(great) == MANY and turn.asked == 1
    left = []
    for number in range(1, 5):
        turn.run()
        left.append(len(great) + len(other))
        assert 0 < turn.spent <= RELEASED // FREED + 1 and turn.asked == min(4, number + 1)
    assert left == [MANY + STEPS + 1 - RELEASED * number for number in (1, 2, 3)] + [0]


def test_a_few_objects_are_let_go_of_at_once() -> None:
    turn, few = Turns(), list(range(STEPS))
    turn.let_go(few)
    assert not few and not turn.asked


def left_behind(client: Client) -> int:
    return client.harness.broker.turn._leftovers.waiting


def holding(monkeypatch: pytest.MonkeyPatch, durable: bool) -> Client:
    """A client with all messages of a queue in its hands, in a transaction."""
    monkeypatch.setattr(CHECKS, "on", False)
    client = Harness().client()
    client.declare("q", durable=durable)
    client.publish("q", *[b"x"] * MANY)
    client.harness.settle()
    client.channel.mode.select_tx()
    client.channel.consume("q", "c", False, False, {})
    client.harness.settle()
    client.channel.cancel("c")
    assert len(client.channel.unacked) == MANY
    return client


@pytest.mark.parametrize("durable", [True, False])
def test_the_acknowledgements_of_a_commit(monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    client = holding(monkeypatch, durable)
    client.channel.ack(0, True)
    client.harness.settle()
    answers, seen = client.ask_commit(), list[int]()
    while not answers or left_behind(client):
        client.harness.turn()
        client.harness.ledger.commit()
        seen.append(left_behind(client))
    falling = seen[seen.index(max(seen)) :]
    assert max(seen) > RELEASED and falling == sorted(falling, reverse=True)
    assert all(before - after <= RELEASED for before, after in pairwise(falling))


def test_the_acknowledgements_of_a_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken back is let go of as it is: nothing is left in the end."""
    client = holding(monkeypatch, True)
    client.channel.ack(0, True)
    client.harness.settle()
    settled = client.channel.mode.work.settled  # type: ignore[union-attr]
    assert len(settled) == MANY
    client.channel.rollback()
    left = []
    while settled:
        left.append(len(settled))
        client.harness.turn()
    assert len(left) >= MANY // STEPS - 1 and len(client.channel.unacked) == MANY


@pytest.mark.parametrize("durable", [True, False])
def test_what_a_deleted_queue_had_handed_out(monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    client = holding(monkeypatch, durable)
    client.harness.broker.operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
    while "q" in client.harness.broker.topology.queues:
        client.harness.turn()
        client.harness.ledger.commit()
    assert left_behind(client) >= MANY - RELEASED


def test_a_purge_of_a_queue_in_memory_counts_what_clients_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """And looks at no message for that."""
    client = Harness().client()
    client.declare("q", durable=False)
    client.publish("q", b"1", b"22", b"333", b"4444")
    held, other = client.get("q"), client.get("q")
    assert held is not None and other is not None
    queue = client.harness.broker.topology.queues["q"]
    client.channel.ack(other.delivery_tag, False)
    one, counts = queue.bytes, list[int]()  # type: ignore[attr-defined]
    client.harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    assert counts == [2] and 3 * queue.bytes < one < 4 * queue.bytes  # type: ignore[attr-defined]
    client.channel.reject(held.delivery_tag, False, True)
    client.harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    assert counts == [2, 1] and queue.bytes == 0  # type: ignore[attr-defined]
