"""What goes with a connection or a channel goes in as many turns as it takes, and no client is in the way."""

from __future__ import annotations

import itertools

import pytest

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.memory_budget import MESSAGE_BYTES, QUEUE_BYTES
from broker_plugin.embedded.queues.turn import AT_ONCE, FREED, STEPS
from tests.broker_plugin.embedded.harness import Harness
from txobserver.invariants import CHECKS
from txobserver.leftovers import RELEASED

pytestmark = pytest.mark.plain
MANY = 3 * STEPS


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setattr(CHECKS, "on", False)
    return Harness()


def turns(harness: Harness) -> list[int]:
    """How many queues there are after each turn, until nothing is left to do."""
    left = [len(harness.broker.topology.queues)]
    while harness._due:
        harness.turn()
        left.append(len(harness.broker.topology.queues))
    return left


def most(left: list[int]) -> int:
    return max((before - after for before, after in itertools.pairwise(left)), default=0)


def test_exclusive_queues_go_in_as_many_turns_as_it_takes(harness: Harness) -> None:
    """``a_connection_with_many_exclusive_queues_ends``: 150,000 of them went in one turn, and the lease with it."""
    connection = harness.connect()
    client = harness.client(connection)
    for number in range(MANY):
        client.declare(f"x{number}", exclusive=True)
    client.publish("x0", *[b"m"] * 10)
    harness.settle()
    harness.broker.turn.begin()
    connection.session.close()  # type: ignore[attr-defined]
    assert len(harness.broker.topology.queues) >= MANY - STEPS
    left = turns(harness)
    assert most(left) <= STEPS and left[-1] == 0
    assert harness.broker.memory.held == 0


def test_a_name_is_free_for_who_declares_it_while_other_queues_of_its_owner_are_going(harness: Harness) -> None:
    """``declared_again_while_its_owner_s_queues_are_going``: a client that comes back finds its names free."""
    connection = harness.connect()
    client = harness.client(connection)
    for number in range(MANY):
        client.declare(f"x{number}", exclusive=True)
    client.publish("x0", b"of the former one")
    harness.settle()
    harness.broker.turn.begin()
    connection.session.close()  # type: ignore[attr-defined]
    again = harness.client()
    with pytest.raises(AmqpError):
        again.channel.get("x1", True, lambda got: None)
    last = again.declare("x0", exclusive=True)
    assert last.messages == 0
    harness.settle()
    assert list(harness.broker.topology.queues) == ["x0"]


def test_a_take_over_while_exclusive_queues_are_going(harness: Harness) -> None:
    connection = harness.connect()
    client = harness.client(connection)
    for number in range(MANY):
        client.declare(f"x{number}", exclusive=True)
    harness.settle()
    harness.broker.turn.begin()
    connection.session.close()  # type: ignore[attr-defined]
    harness.take_over()
    again = harness.client()
    again.declare("x0")
    harness.settle()
    assert list(harness.broker.topology.queues) == ["x0"]


def test_auto_delete_queues_go_with_a_channel_in_as_many_turns_as_it_takes(harness: Harness) -> None:
    client, closed = harness.client(), list[bool]()
    for number in range(MANY):
        client.declare(f"a{number}", durable=False, auto_delete=True)
        client.channel.consume(f"a{number}", "", True, False, {})
    harness.settle()
    harness.broker.turn.begin()
    client.channel.close(lambda: closed.append(True))
    assert not closed
    left = turns(harness)
    assert most(left) <= STEPS and left[-1] == 0 and closed == [True]


def test_a_queue_that_gets_a_consumer_before_its_turn_comes_stays(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    for number in range(MANY):
        client.declare(f"a{number}", durable=False, auto_delete=True)
        client.channel.consume(f"a{number}", "", True, False, {})
    harness.settle()
    harness.broker.turn.begin()
    client.channel.close()
    other.channel.consume(f"a{MANY - 1}", "", True, False, {})
    harness.settle()
    assert list(harness.broker.topology.queues) == [f"a{MANY - 1}"]


@pytest.mark.parametrize("end", ["deleted", "connection ends", "take-over"])
@pytest.mark.parametrize("exclusive", [True, False])
def test_queues_count_though_they_are_empty(harness: Harness, end: str, exclusive: bool) -> None:
    """``many_empty_queues``: 150,000 exclusive ones took 300 MiB of the node, of which nothing was counted."""
    connection = harness.connect()
    client, memory = harness.client(connection), harness.broker.memory
    client.declare("q", durable=False, exclusive=exclusive)
    client.declare("r", durable=False, exclusive=exclusive, arguments={"x-note": "n" * 5000})
    held = memory.held
    assert held >= 2 * QUEUE_BYTES + 5000
    assert client.channel.session.holder.total == (held if exclusive else 0)
    if end == "deleted":
        for name in ("q", "r"):
            harness.broker.operations.deletions.delete(client.channel, name, False, False, lambda count: None)
        harness.settle()
    elif end == "take-over":
        harness.take_over()
    else:
        connection.session.close()  # type: ignore[attr-defined]
        harness.settle()
    assert memory.held == (0 if exclusive or end != "connection ends" else held)


@pytest.mark.parametrize("end", ["purge", "delete"])
def test_messages_of_a_queue_that_is_emptied_are_freed_in_turns(harness: Harness, end: str) -> None:
    """``a_million_messages_are_purged``: what is told of them is told at once."""
    client, counts = harness.client(), list[int]()
    client.declare("q", durable=False)
    client.publish("q", *[b"m"] * (2 * RELEASED + 2))
    client.get("q")
    harness.settle()
    if end == "purge":
        harness.broker.operations.queues.purge(client.channel, "q", counts.append)
        assert harness.broker.memory.held == QUEUE_BYTES + MESSAGE_BYTES + 3
    else:
        harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
        assert harness.broker.memory.held == 0
    assert counts == [2 * RELEASED + 1] and len(turns(harness)) == 4


def test_exclusive_queues_with_messages_go_in_more_turns(harness: Harness) -> None:
    """A thousand queues with hundreds of messages each are many steps."""
    connection = harness.connect()
    client = harness.client(connection)
    for number in range(40):
        client.declare(f"x{number}", exclusive=True)
        client.publish(f"x{number}", *[b"m"] * (5 * FREED))
    harness.settle()
    harness.broker.turn.begin()
    harness.broker.turn.spent = STEPS
    connection.session.close()  # type: ignore[attr-defined]
    left = [len(harness.broker.topology.queues)]
    assert left == [40 - -(-AT_ONCE // 6)]
    assert turns(harness)[-1] == 0


def test_channels_of_one_connection_end_in_as_many_turns_as_it_takes(harness: Harness) -> None:
    """``every_channel_of_a_connection``: 2,047 channels, each with a consumer, ended in one turn of 35 ms."""
    keeper = harness.client()
    keeper.declare("q")
    keeper.publish("q", *[b"m"] * 10)
    harness.settle()
    connection = harness.connect()
    clients = [harness.client(connection) for _ in range(MANY)]
    for client in clients:
        client.channel.consume("q", "c", False, False, {})
    harness.settle()
    harness.broker.turn.begin()
    connection.session.close()  # type: ignore[attr-defined]
    ended = [sum(client.channel.closed for client in clients)]
    keeper.publish("q", b"new")
    while harness._due:
        harness.turn()
        ended.append(sum(client.channel.closed for client in clients))
    assert most([-count for count in ended]) <= STEPS and ended[-1] == MANY
    assert all(delivery.body != b"new" for client in clients for delivery in client.deliveries)
    keeper.channel.consume("q", "c", False, False, {})
    harness.settle()
    assert len(keeper.deliveries) == 11


def test_a_take_over_while_channels_of_a_connection_are_ending(harness: Harness) -> None:
    connection = harness.connect()
    clients = [harness.client(connection) for _ in range(MANY)]
    clients[-1].declare("q")
    clients[-1].publish("q", b"m")
    harness.settle()
    for client in clients:
        client.channel.consume("q", "c", False, False, {})
    harness.settle()
    harness.broker.turn.begin()
    connection.session.close()  # type: ignore[attr-defined]
    assert not clients[-1].channel.closed
    harness.take_over()
    again = harness.client()
    again.channel.consume("q", "c", False, False, {})
    harness.settle()
    assert [delivery.body for delivery in again.deliveries] == [b"m"]
    assert not harness.broker._sessions or list(harness.broker._sessions) == [again.channel.session]


def test_consumers_are_told_that_their_queue_is_gone_in_as_many_turns_as_it_takes(harness: Harness) -> None:
    """``a_queue_of_many_consumers_is_deleted``: 60,000 consumers cost one turn of 0.2 s."""
    client, other = harness.client(), harness.client()
    client.declare("q")
    for number in range(MANY):
        other.channel.consume("q", f"c{number}", False, False, {})
    harness.settle()
    counts: list[int] = []
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
    told = [0]
    while harness._due or harness.ledger.busy:
        harness.turn()
        harness.ledger.commit()
        told.append(len(other.cancelled_tags))
    assert counts == [0] and told[-1] == MANY and most([-count for count in told]) <= STEPS
    assert not other.channel.consumers


def test_a_consumer_is_cancelled_or_its_tag_used_again_before_its_turn_comes(harness: Harness) -> None:
    """Who has asked for the deletion knows that its consumers are gone, and may use their tags."""
    client = harness.client()
    client.declare("q")
    for number in range(MANY):
        client.channel.consume("q", f"c{number}", False, False, {})
    harness.settle()
    counts: list[int] = []
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
    while not counts:
        harness.ledger.commit()
        harness.turn()
    last, last_but_one = f"c{MANY - 1}", f"c{MANY - 2}"
    assert last in client.channel.consumers and last not in client.cancelled_tags
    client.channel.cancel(last_but_one)
    client.ask_declare("q2", True)
    client.channel.consume("q2", last, False, False, {})
    harness.settle()
    assert client.errors == [] and client.cancelled_tags.count(last) == 1
    assert last_but_one not in client.cancelled_tags
    client.publish("q2", b"m")
    harness.settle()
    assert [delivery.consumer for delivery in client.deliveries] == [last]
