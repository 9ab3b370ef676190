"""Requests whose work grows with what was declared before: a turn of the loop has room for few of them."""

from __future__ import annotations

import pytest
from pamqp import body, frame, header
from pamqp.commands import Basic, Channel, Exchange, Queue

from broker_plugin.embedded.queues.turn import LOOKS_A_STEP, STEPS
from tests.broker_plugin.amqp.test_attacks import Socket, Turns
from tests.broker_plugin.embedded.harness import Harness

pytestmark = pytest.mark.plain
MANY = 40 * LOOKS_A_STEP


def publishes(count: int, headers: dict[str, int] | None = None) -> bytes:
    """To exchange e, with a key for each."""
    said = []
    for number in range(count):
        properties = header.ContentHeader(0, 1, Basic.Properties(headers=headers))
        for each in (Basic.Publish(0, "e", f"{'k.' * 40}{number}"), properties, body.ContentBody(b"m")):
            said.append(frame.marshal(each, 1))
    return b"".join(said)


def client_with(*declared: frame.base.Frame) -> tuple[Turns, Socket]:
    turns = Turns(Harness())
    client = Socket(turns)
    for each in declared:
        client.peer.send(1, each)
    client.peer.settle()
    client.peer.frames()
    return turns, client


def most_in_a_turn(turns: Turns, client: Socket, data: bytes) -> int:
    """How many messages come into queue q in one turn, at most; all of them come in the end."""
    queue = turns.harness.broker.topology.queues["q"]
    client.arrives(data)
    most, before = queue.ready, queue.ready
    while not client.reads:
        turns.turn()
        most, before = max(most, queue.ready - before), queue.ready
    return most


EXCHANGES = {
    "a_fanout_to_many_queues": [
        Exchange.Declare(exchange="e", exchange_type="fanout"),
        *[Queue.Declare(queue=f"q{n}") for n in range(MANY)],
        *[Queue.Bind(queue=f"q{n}", exchange="e") for n in range(MANY)],
        Queue.Bind(queue="q", exchange="e"),
    ],
    "a_chain_of_exchanges": [
        Exchange.Declare(exchange="e", exchange_type="fanout"),
        *[Exchange.Declare(exchange=f"e{n}", exchange_type="fanout") for n in range(MANY)],
        Exchange.Bind(destination="e0", source="e"),
        *[Exchange.Bind(destination=f"e{n + 1}", source=f"e{n}") for n in range(MANY - 1)],
        Queue.Bind(queue="q", exchange=f"e{MANY - 1}"),
    ],
    "headers_that_nearly_match_many_bindings": [
        Exchange.Declare(exchange="e", exchange_type="headers"),
        *[Queue.Bind(queue="q", exchange="e", routing_key=str(n), arguments={"a": 1, "b": 1}) for n in range(2 * MANY)],
        Queue.Bind(queue="q", exchange="e", arguments={"x-match": "any", "z": 1}),
    ],
    "a_key_that_matches_patterns_in_many_ways": [
        Exchange.Declare(exchange="e", exchange_type="topic"),
        *[Queue.Bind(queue="q", exchange="e", routing_key=".".join(["#", "k"] * n + ["#"])) for n in range(1, 20)],
    ],
}


@pytest.mark.parametrize("kind", EXCHANGES)
def test_what_a_message_looks_at_counts(kind: str) -> None:
    """``publishes_in_a_burst_that_each_look_at_much``: five hundred messages to two thousand queues of this node, in
    one piece, took the loop a second, and the lease with it."""
    turns, client = client_with(*EXCHANGES[kind])
    found = most_in_a_turn(turns, client, publishes(STEPS, {"a": 1, "z": 1}))
    assert 0 < found <= STEPS // 30


def test_a_route_that_is_remembered_counts_as_well() -> None:
    turns, client = client_with(*EXCHANGES["a_fanout_to_many_queues"])
    most_in_a_turn(turns, client, publishes(1))
    assert 0 < most_in_a_turn(turns, client, publishes(1) * STEPS) <= STEPS // 30


def test_few_deletions_of_an_exchange_that_leads_to_much_in_a_turn() -> None:
    """``exchange_delete_if_unused``: each looks for all that the exchange leads to, and is refused; three hundred of
    them over 5,000 bindings cost a primary its lease."""
    turns, client = client_with(*EXCHANGES["a_fanout_to_many_queues"])
    channels = range(2, 2 + STEPS // 10)
    client.peer.connection.receive(b"".join(frame.marshal(Channel.Open(), each) for each in channels))
    client.peer.settle()
    client.peer.frames()
    deletions = [frame.marshal(Exchange.Delete(exchange="e", if_unused=True), each) for each in channels]
    client.arrives(b"".join(deletions))
    refused = [client.answers]
    while not client.reads:
        turns.turn()
        refused.append(client.answers)
    assert sum(refused) == len(channels) and max(refused) <= STEPS // 40
