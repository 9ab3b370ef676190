"""tx: publishes and acknowledgements together or not at all, and never before the commit point."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.memory_budget import QUEUES
from tests.broker_plugin.embedded.harness import Client, Harness
from txobserver.events import TxDecision, TxDequeue, TxEnqueue, TxOpen


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    for name in ("in", "out", "also out"):
        client.declare(name)
    client.declare("local", durable=False)
    client.publish("in", b"job 1", b"job 2")
    harness.settle()
    client.channel.mode.select_tx()
    return client


def job(client: Client) -> int:
    """Take a job; the delivery tag."""
    answer = client.get("in")
    assert answer is not None
    return answer.delivery_tag


def test_publishes_reach_the_backups_before_the_commit(harness: Harness, client: Client) -> None:
    before = len(harness.ledger.log)
    client.publish("out", b"1")
    client.publish("also out", b"2")
    harness.settle()
    events = harness.ledger.log[before:]
    assert [type(event) for event in events] == [TxOpen, TxEnqueue, TxEnqueue]
    assert client.count("out") == 0


def test_a_queue_that_is_deleted_before_the_commit_holds_nothing(harness: Harness, client: Client) -> None:
    """Nothing would ever take the message out of it: the node's memory was counted as used for ever."""
    client.publish("local", b"note")
    harness.broker.operations.deletions.delete(client.channel, "local", False, False, lambda count: None)
    answers = client.ask_commit()
    harness.settle()
    assert answers and harness.broker.memory.kinds[QUEUES] == 0


def test_commit_waits_for_the_commit_point(harness: Harness, client: Client) -> None:
    tag = job(client)
    client.publish("out", b"result")
    client.publish("local", b"note")
    client.channel.ack(tag, False)
    answers = client.ask_commit()
    other = harness.client()
    seen = [other.ask_get("local"), other.ask_get("out")]
    harness.turn()
    assert answers == [] and seen == [[None], [None]]
    harness.settle()
    assert answers == ["ok"]
    assert other.drain("out") == [b"result"] and other.drain("local") == [b"note"]
    client.channel.close()
    harness.settle()
    assert other.drain("in") == [b"job 2"]


def test_acknowledgements_of_one_queue_are_one_event(harness: Harness, client: Client) -> None:
    for tag in (job(client), job(client)):
        client.channel.ack(tag, False)
    before = len(harness.ledger.log)
    client.ask_commit()
    harness.settle()
    dequeues = [event for event in harness.ledger.log[before:] if isinstance(event, TxDequeue)]
    assert [len(event.entries) for event in dequeues] == [2]


def test_failed_commit_closes_the_channel_and_gives_everything_back(harness: Harness, client: Client) -> None:
    tag = job(client)
    client.publish("out", b"result")
    client.publish("local", b"note")
    client.channel.ack(tag, False)
    harness.ledger.refuse = "the transaction was rolled back: a disk is full"
    answers = client.ask_commit()
    harness.settle()
    assert answers == []
    (error,) = client.errors
    assert error.code == 406 and not error.hard
    assert error.reply_text == "PRECONDITION_FAILED - the transaction was rolled back: a disk is full"
    harness.ledger.refuse = None
    other = harness.client()
    assert other.drain("out") == [] and other.drain("local") == []
    again = other.get("in")
    assert again is not None and again.message.body == b"job 1" and again.redelivered


def test_rollback_makes_acknowledged_messages_outstanding_again(harness: Harness, client: Client) -> None:
    tag = job(client)
    client.publish("out", b"result")
    client.channel.ack(tag, False)
    client.channel.rollback()
    harness.settle()
    assert client.count("in") == 1, "the job is still in this client's hands"
    client.channel.ack(tag, False)
    client.ask_commit()
    client.channel.close()
    harness.settle()
    assert harness.client().drain("in") == [b"job 2"]
    assert harness.client().drain("out") == []


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_closing_rolls_back(harness: Harness, client: Client, how: str) -> None:
    client.channel.ack(job(client), False)
    client.publish("out", b"result")
    client.publish("local", b"note")
    (client.channel if how == "channel" else client.channel.session).close()
    harness.settle()
    (decision,) = [event for event in harness.ledger.log if isinstance(event, TxDecision)]
    other = harness.client()
    assert other.drain("in") == [b"job 1", b"job 2"] and other.drain("out") == [] and other.drain("local") == []
    assert isinstance(decision, TxDecision) and not decision.commit


def test_an_empty_transaction_costs_nothing(harness: Harness, client: Client) -> None:
    before = len(harness.ledger.log)
    assert client.ask_commit() == ["ok"]
    harness.settle()
    assert harness.ledger.log[before:] == []


def test_local_queues_need_no_observer(harness: Harness, client: Client) -> None:
    client.publish("local", b"1")
    before = len(harness.ledger.log)
    assert client.ask_commit() == ["ok"]
    assert client.drain("local") == [b"1"]
    assert harness.ledger.log[before:] == []


def test_channel_closed_while_the_commit_is_on_its_way(harness: Harness, client: Client) -> None:
    """The transaction was decided: its acknowledgements are final, and its local publishes appear."""
    client.channel.ack(job(client), False)
    client.publish("out", b"result")
    client.publish("local", b"note")
    answers = client.ask_commit()
    client.channel.close()
    harness.settle()
    other = harness.client()
    assert answers == [], "no client is there to be answered"
    assert other.drain("in") == [b"job 2"] and other.drain("out") == [b"result"] and other.drain("local") == [b"note"]


def test_channel_closed_while_a_commit_fails(harness: Harness, client: Client) -> None:
    client.channel.ack(job(client), False)
    client.publish("out", b"result")
    outcomes: list[object] = []
    original = harness.ledger.tx_commit
    harness.ledger.tx_commit = lambda tx, count, done: outcomes.append((tx, done))  # type: ignore[method-assign]
    client.ask_commit()
    client.channel.close()
    harness.settle()
    assert harness.client().count("in") == 1, "its outcome is not known"
    harness.ledger.tx_commit = original  # type: ignore[method-assign]
    tx, done = outcomes[0]  # type: ignore[misc]
    harness.ledger.tx_rollback(tx)
    done("rolled back")
    harness.settle()
    assert harness.client().drain("in") == [b"job 1", b"job 2"]


def test_commit_in_flight_at_a_take_over_is_not_answered(harness: Harness, client: Client) -> None:
    client.publish("out", b"result")
    answers = client.ask_commit()
    harness.turn()
    harness.take_over()
    harness.settle()
    assert answers == [] and client.errors == []
    assert harness.client().drain("out") == []


def test_requeue_counts_at_commit(harness: Harness, client: Client) -> None:
    client.channel.reject(job(client), False, True)
    harness.settle()
    assert client.count("in") == 1
    client.ask_commit()
    harness.settle()
    assert client.count("in") == 2


def test_prefetch_is_freed_at_commit(harness: Harness, client: Client) -> None:
    client.channel.qos(1, False)
    client.channel.consume("in", "c", False, False, {})
    harness.settle()
    client.channel.ack(client.deliveries[0].tag, False)
    harness.settle()
    assert client.bodies == [b"job 1"]
    client.ask_commit()
    harness.settle()
    assert client.bodies == [b"job 1", b"job 2"]


def test_a_queue_deleted_before_the_commit(harness: Harness, client: Client) -> None:
    client.channel.ack(job(client), False)
    client.publish("out", b"lost")
    client.publish("local", b"lost")
    other = harness.client()
    for name in ("out", "local", "in"):
        harness.broker.operations.deletions.delete(other.channel, name, False, False, lambda count: None)
    harness.settle()
    client.publish("also out", b"kept")
    answers = client.ask_commit()
    harness.settle()
    assert answers == ["ok"] and other.drain("also out") == [b"kept"]
