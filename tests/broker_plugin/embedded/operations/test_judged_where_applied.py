"""Conditions travel with the step and are judged where it is applied; what is told is what was decided there.

``ledger.commit(n)`` lets so many events pass the commit point, so that others are still on their way.
"""

from __future__ import annotations

import pytest

from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.cluster_harness import ClusterHarness
from tests.broker_plugin.embedded.harness import Client, Harness, got
from tests.broker_plugin.embedded.operations.test_declarations import bind
from txobserver.outcomes import XaStatus
from txobserver.xid import Xid


def delete(client: Client, name: str, if_unused: bool = False, if_empty: bool = False) -> list[int]:
    """queue.delete; the list will hold the number of messages that it told."""
    counts: list[int] = []
    client.harness.broker.operations.deletions.delete(client.channel, name, if_unused, if_empty, counts.append)
    return counts


def consume(client: Client, queue: str, tag: str = "c") -> list[str]:
    tags: list[str] = []
    client.channel.consume(queue, tag, False, False, {}, tags.append)
    return tags


def refusals(client: Client) -> list[str]:
    return [error.reply_text for error in client.errors]


NOT_EMPTY = "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
NO_QUEUE = "NOT_FOUND - no queue 'q' in vhost '/'"


# -- if-empty


def test_if_empty_is_judged_behind_the_publishes_before_it(harness: Harness) -> None:
    """They have not passed the commit point when it comes, and will be confirmed."""
    publisher, deleter = harness.client(), harness.client()
    publisher.declare("q")
    publisher.channel.mode.select_confirms()
    publisher.publish("q", b"1", b"2", b"3")
    counts = delete(deleter, "q", if_empty=True)
    harness.settle()
    assert counts == [] and refusals(deleter) == [NOT_EMPTY]
    assert publisher.confirmed_numbers() == [1, 2, 3]
    assert harness.client().drain("q") == [b"1", b"2", b"3"]


def test_if_empty_is_judged_behind_a_transaction_decided_before_it(harness: Harness) -> None:
    publisher, deleter = harness.client(), harness.client()
    publisher.declare("q")
    publisher.channel.mode.select_tx()
    publisher.publish("q", b"1")
    committed = publisher.ask_commit()
    counts = delete(deleter, "q", if_empty=True)
    harness.settle()
    assert committed == ["ok"] and counts == [] and refusals(deleter) == [NOT_EMPTY]


def test_if_empty_deletes_what_is_in_clients_hands(harness: Harness) -> None:
    """As RabbitMQ: empty is a queue with nothing ready."""
    client = harness.client()
    client.declare("q")
    client.publish("q", b"1", b"2")
    assert client.get("q") is not None and client.get("q") is not None
    assert (counts := delete(harness.client(), "q", if_empty=True)) == []
    harness.settle()
    assert counts == [0] and "q" not in harness.broker.topology.queues


def test_what_comes_back_behind_an_if_empty_deletion_goes_with_the_queue(harness: Harness) -> None:
    """It stood in the stream already, with the queue found empty: the number that is told agrees with that."""
    client, deleter = harness.client(), harness.client()
    client.declare("q")
    client.publish("q", b"1")
    held = client.get("q")
    assert held is not None
    counts = delete(deleter, "q", if_empty=True)
    client.channel.reject(held.delivery_tag, False, True)
    harness.settle()
    assert counts == [0] and client.errors == deleter.errors == []


def test_if_empty_is_judged_by_which_messages_are_there_not_by_how_many(harness: Harness) -> None:
    """What was in a client's hands is acknowledged, and another one comes: both before the deletion in the stream."""
    client, deleter = harness.client(), harness.client()
    client.declare("q")
    client.publish("q", b"1")
    held = got(client.get("q"))
    client.publish("q", b"2")
    client.channel.ack(held.delivery_tag, False)
    harness.turn()
    counts = delete(deleter, "q", if_empty=True)
    harness.settle()
    assert counts == [] and refusals(deleter) == [NOT_EMPTY]
    assert harness.client().drain("q") == [b"2"]


def test_a_refused_deletion_lets_the_queue_go_on(harness: Harness) -> None:
    publisher, consumer, deleter = harness.client(), harness.client(), harness.client()
    publisher.declare("q")
    consume(consumer, "q")
    publisher.channel.mode.select_tx()
    publisher.publish("q", b"1")
    publisher.ask_commit()
    delete(deleter, "q", if_empty=True)
    later = consume(harness.client(), "q", "later")
    harness.settle()
    assert refusals(deleter) == [NOT_EMPTY] and later == ["later"]
    assert consumer.bodies == [b"1"] and consumer.cancelled_tags == []


@pytest.mark.parametrize("passed", [True, False])
def test_the_primary_dies_before_an_if_empty_deletion_is_answered(harness: Harness, passed: bool) -> None:
    """No client is told; asked again, the next primary answers by what it holds."""
    publisher, deleter = harness.client(), harness.client()
    publisher.declare("q")
    publisher.publish("q", b"1")
    counts = delete(deleter, "q", if_empty=True)
    if passed:
        harness.ledger.commit(1)
    harness.take_over()
    assert counts == [] == deleter.errors
    again = harness.client()
    counts = delete(again, "q", if_empty=True)
    harness.settle()
    assert (refusals(again) == [NOT_EMPTY] and counts == []) if passed else counts == [0]


def in_a_prepared_branch(harness: Harness, xid: Xid) -> Client:
    """A queue with one message, which a prepared branch dequeues."""
    client, answers = harness.client(), list[XaStatus]()
    client.declare("q")
    client.publish("q", b"1")
    tag = got(client.get("q")).delivery_tag
    client.channel.mode.select_dtx()
    client.channel.mode.start_branch(xid, False, False)
    client.channel.ack(tag, False)
    client.channel.mode.end_branch(xid, False, False)
    harness.broker.operations.branches.prepare(client.channel, xid, answers.append)
    harness.settle()
    assert answers == [XaStatus.OK]
    return client


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize("rolled_back", [False, True])
def test_if_empty_and_what_a_prepared_branch_dequeues(rolled_back: bool, take_over: bool) -> None:
    """Locked, it does not keep the queue; given back before the deletion, it does: the stream has both in order."""
    harness, xid = ClusterHarness(WindowLimits()), Xid(1, b"x", b"")
    in_a_prepared_branch(harness, xid)
    if take_over:
        harness.crash(False)
    client, deleter, answers = harness.client(), harness.client(), list[XaStatus]()
    client.channel.mode.select_dtx()
    if rolled_back:
        harness.broker.operations.branches.rollback(client.channel, xid, answers.append)
    counts = delete(deleter, "q", if_empty=True)
    harness.settle()
    if rolled_back:
        assert answers == [XaStatus.OK] and refusals(deleter) == [NOT_EMPTY]
        assert harness.client().drain("q") == [b"1"]
    else:
        assert counts == [0] and deleter.errors == []


# -- if-unused, and consumers


@pytest.mark.parametrize("if_unused", [True, False])
def test_no_consumer_comes_to_a_queue_that_is_being_deleted(harness: Harness, if_unused: bool) -> None:
    client, consumer = harness.client(), harness.client()
    client.declare("q")
    counts = delete(client, "q", if_unused=if_unused)
    tags = consume(consumer, "q")
    harness.settle()
    assert counts == [0] and tags == [] and refusals(consumer) == [NO_QUEUE] and consumer.cancelled_tags == []


def test_no_consumer_comes_to_an_auto_delete_queue_whose_last_one_has_left(harness: Harness) -> None:
    client, late = harness.client(), harness.client()
    client.declare("q", auto_delete=True)
    consume(client, "q")
    harness.settle()
    client.channel.cancel("c")
    tags = consume(late, "q")
    harness.settle()
    assert tags == [] and refusals(late) == [NO_QUEUE] and late.cancelled_tags == []


def test_a_consumer_that_came_first_keeps_the_queue(harness: Harness) -> None:
    client, consumer = harness.client(), harness.client()
    client.declare("q")
    client.declare("auto", auto_delete=True)
    consume(consumer, "q")
    waiting = consume(consumer, "auto", "d")
    counts = delete(client, "q", if_unused=True), delete(harness.client(), "auto", if_unused=True)
    harness.settle()
    assert counts == ([], []) and waiting == ["d"] and set(harness.broker.topology.queues) == {"q", "auto"}
    assert refusals(client) == ["PRECONDITION_FAILED - queue 'q' in vhost '/' in use"]


def test_a_consumer_that_waited_before_the_last_one_left_keeps_the_auto_delete_queue(harness: Harness) -> None:
    """Both wait for a purge, and it comes first."""
    client, first, second = harness.client(), harness.client(), harness.client()
    client.declare("auto", auto_delete=True)
    consume(first, "auto", "a")
    harness.settle()
    purged: list[int] = []
    harness.broker.operations.queues.purge(client.channel, "auto", purged.append)
    waiting = consume(second, "auto", "b")
    first.channel.cancel("a")
    assert waiting == []
    harness.settle()
    assert purged == [0] and waiting == ["b"] and set(harness.broker.topology.queues) == {"auto"}


# -- a take-over ends consumers, and what is not durable


def test_auto_delete_queue_goes_with_the_primary_of_its_last_consumer(harness: Harness) -> None:
    client = harness.client()
    for name in ("used", "left", "unused"):
        client.declare(name, auto_delete=True)
    client.declare("kept")
    bind(harness, client, "amq.fanout", "used")
    for name in ("used", "kept"):
        assert consume(client, name, name) == ([] if name == "used" else ["kept"])
        harness.settle()
    client.publish("used", b"1")
    harness.settle()
    harness.take_over()
    client = harness.client()
    client.ask_declare("used", auto_delete=True)
    harness.settle()
    assert client.answers[-1].messages == 0, "declared behind the deletion, it is another queue"
    assert set(harness.broker.topology.queues) == {"used", "left", "unused", "kept"}
    assert harness.content.configuration.bindings == []
    harness.take_over()
    harness.settle()
    assert set(harness.broker.topology.queues) == {"used", "left", "unused", "kept"}, "no consumer since: they wait"


def test_the_channel_ends_before_its_auto_delete_queue_is_used(harness: Harness) -> None:
    client = harness.client()
    client.declare("q", auto_delete=True)
    tags = consume(client, "q")
    client.channel.close()
    harness.settle()
    assert tags == [] and "q" not in harness.broker.topology.queues
