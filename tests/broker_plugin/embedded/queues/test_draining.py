"""Purges, and deletions if empty, of queues of which clients hold very much: no event names all that they hold."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.queues.draining import SPARED_MOST
from tests.broker_plugin.embedded.harness import Client, Harness, queue_of
from txobserver.events import Configure, Purge, Removal, Settle

HELD = SPARED_MOST + 1
READY = 3 * SPARED_MOST


@pytest.fixture
def consumer(harness: Harness, client: Client) -> Client:
    """It holds HELD messages, and will take no more."""
    client.publish("q", *[b"%d" % number for number in range(HELD + READY)])
    harness.settle()
    consumer = harness.client()
    consumer.channel.qos(HELD, False)
    consumer.channel.consume("q", "c", False, False, {})
    harness.settle()
    assert len(consumer.deliveries) == HELD
    return consumer


def purge(client: Client) -> list[int]:
    counts: list[int] = []
    client.harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    return counts


def test_no_event_names_all_that_clients_hold(harness: Harness, client: Client, consumer: Client) -> None:
    """``purge_of_what_clients_hold``: 300,000 held messages in one event cost the primary 1.6 s, and the lease."""
    harness.broker.turn.begin()
    harness.broker.turn.longest = 0
    before = len(harness.ledger.log)
    counts = purge(client)
    harness.turn()
    client.publish("q", b"new")
    harness.settle()
    assert counts == [READY]
    events = harness.ledger.log[before:]
    assert not any(isinstance(event, Purge) for event in events)
    settled = [event for event in events if isinstance(event, Settle)]
    assert {event.reason for event in settled} == {Removal.DROPPED}
    assert harness.broker.turn.longest <= 2 * SPARED_MOST
    assert client.count("q") == 1
    consumer.channel.close()
    harness.settle()
    assert client.count("q") == HELD + 1


def test_it_is_answered_when_all_have_left(harness: Harness, client: Client, consumer: Client) -> None:
    counts = purge(client)
    harness.turn()
    while queue_of(harness).ready:
        harness.ledger.commit(1)
        harness.turn()
    assert counts == [], "the last ones are on their way out"
    harness.settle()
    assert counts == [READY]


def test_consumers_get_nothing_meanwhile(harness: Harness, client: Client, consumer: Client) -> None:
    counts = purge(client)
    harness.turn()
    consumer.channel.qos(0, False)
    getter = harness.client()
    got = getter.ask_get("q")
    harness.settle()
    assert counts == [READY] and got == [None]
    assert len(consumer.deliveries) == HELD


def test_what_comes_back_meanwhile_may_go_or_stay_and_the_count_is_true(
    harness: Harness, client: Client, consumer: Client
) -> None:
    counts = purge(client)
    harness.turn()
    consumer.channel.close()
    harness.settle()
    assert counts == [READY] and client.count("q") == HELD


def test_a_take_over_in_the_middle(harness: Harness, client: Client, consumer: Client) -> None:
    counts = purge(client)
    harness.progress(3)
    harness.take_over()
    again = harness.client()
    left = again.count("q")
    assert counts == [] and HELD <= left < HELD + READY
    assert purge(again) == []
    harness.settle()
    assert again.count("q") == 0


def test_a_purge_of_nothing(harness: Harness, client: Client, consumer: Client) -> None:
    purge(client)
    harness.settle()
    counts = purge(client)
    harness.settle()
    assert counts == [0]


def test_a_deletion_if_empty_names_the_end_of_what_clients_hold(
    harness: Harness, client: Client, consumer: Client
) -> None:
    """``deletion_if_empty_of_what_clients_hold``: so did the offsets of all that clients held."""
    purge(client)
    harness.settle()
    counts: list[int] = []
    harness.broker.operations.deletions.delete(client.channel, "q", False, True, counts.append)
    harness.settle()
    step = harness.ledger.log[-1]
    assert isinstance(step, Configure) and step.terms is not None and step.terms.spared == []
    assert counts == [0] and "q" not in harness.broker.topology.queues


def test_not_if_a_message_comes_before_it(harness: Harness, client: Client, consumer: Client) -> None:
    purge(client)
    harness.settle()
    client.publish("q", b"first")
    harness.broker.operations.deletions.delete(client.channel, "q", False, True, lambda count: None)
    harness.settle()
    assert [error.code for error in client.errors] == [406] and "q" in harness.broker.topology.queues
