"""Queues of this node's memory."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.operations.binding_operations import BindRequest
from tests.broker_plugin.embedded.harness import Client, Harness


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.declare("q", durable=False)
    return client


def test_in_order_and_back_to_old_places(harness: Harness, client: Client) -> None:
    client.publish("q", b"1", b"2", b"3")
    first, second = client.get("q"), client.get("q")
    assert first is not None and second is not None and not first.redelivered
    client.channel.reject(second.delivery_tag, False, True)
    client.channel.reject(first.delivery_tag, False, True)
    answers = [client.get("q") for _ in range(3)]
    assert [(a.message.body, a.redelivered) for a in answers if a] == [(b"1", True), (b"2", True), (b"3", False)]


def test_counts(harness: Harness, client: Client) -> None:
    client.publish("q", b"1", b"2", b"3")
    held = client.get("q")
    assert held is not None and held.remaining == 2
    counts: list[int] = []
    harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    assert counts == [2]
    client.channel.reject(held.delivery_tag, False, True)
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
    assert counts == [2, 1]


def test_it_costs_the_ledger_nothing(harness: Harness, client: Client) -> None:
    client.channel.consume("q", "c", False, False, {})
    client.publish("q", b"1", b"2")
    harness.turn()
    client.channel.ack(2, True)
    harness.turn()
    assert client.bodies == [b"1", b"2"] and harness.ledger.log == []


def test_one_message_to_both_kinds(harness: Harness, client: Client) -> None:
    client.declare("durable")
    for queue in ("q", "durable"):
        request = BindRequest("amq.fanout", queue, True, "")
        harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    harness.settle()
    client.channel.mode.select_confirms()
    client.publish("", b"m", exchange="amq.fanout")
    harness.turn()
    assert client.confirms == []
    harness.settle()
    assert client.confirms == [(1, False, True)]
    assert client.drain("q") == client.drain("durable") == [b"m"]
