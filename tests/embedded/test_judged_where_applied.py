"""Conditions travel with the step and are judged where it is applied; what is told is what was decided there.

``ledger.commit(n)`` lets so many events pass the commit point, so that others are still on their way.
"""

from __future__ import annotations

from functools import partial

import pytest

from broker_plugin.embedded.binding_operations import BindRequest
from broker_plugin.embedded.durable_queue import WindowLimits
from tests.embedded.cluster_harness import ClusterHarness
from tests.embedded.harness import Client, Harness, got
from tests.embedded.test_declarations import bind, declare_exchange
from txobserver.outcomes import Status
from txobserver.xid import Xid


@pytest.fixture
def harness() -> Harness:
    return Harness()


def delete(client: Client, name: str, if_unused: bool = False, if_empty: bool = False) -> list[int]:
    """queue.delete; the list will hold the number of messages that it told."""
    counts: list[int] = []
    client.harness.broker.queue_operations.delete(client.channel, name, if_unused, if_empty, counts.append)
    return counts


def unbind(client: Client, source: str, queue: str) -> list[str]:
    answers: list[str] = []
    request = BindRequest(source, queue, True, "")
    client.harness.broker.binding_operations.unbind(client.channel, request, partial(answers.append, "ok"))
    return answers


def delete_exchange(client: Client, name: str, if_unused: bool) -> list[str]:
    answers: list[str] = []
    client.harness.broker.exchange_operations.delete(client.channel, name, if_unused, partial(answers.append, "ok"))
    return answers


def consume(client: Client, queue: str, tag: str = "c") -> list[str]:
    tags: list[str] = []
    client.channel.consume(queue, tag, False, False, {}, tags.append)
    return tags


def refusals(client: Client) -> list[str]:
    return [error.reply_text for error in client.errors]


def exchanges(harness: Harness) -> set[str]:
    return set(harness.content.configuration.exchanges)


NOT_EMPTY = "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
NO_QUEUE = "NOT_FOUND - no queue 'q' in vhost '/'"
NO_EXCHANGE = "NOT_FOUND - no exchange 'x' in vhost '/'"


# -- if-empty


def test_if_empty_is_judged_behind_the_publishes_before_it(harness: Harness) -> None:
    """They have not passed the commit point when it comes, and will be confirmed."""
    publisher, deleter = harness.client(), harness.client()
    publisher.declare("q")
    publisher.channel.select_confirms()
    publisher.publish("q", b"1", b"2", b"3")
    counts = delete(deleter, "q", if_empty=True)
    harness.settle()
    assert counts == [] and refusals(deleter) == [NOT_EMPTY]
    assert publisher.confirmed_numbers() == [1, 2, 3]
    assert harness.client().drain("q") == [b"1", b"2", b"3"]


def test_if_empty_is_judged_behind_a_transaction_decided_before_it(harness: Harness) -> None:
    publisher, deleter = harness.client(), harness.client()
    publisher.declare("q")
    publisher.channel.select_tx()
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


def test_a_refused_deletion_lets_the_queue_go_on(harness: Harness) -> None:
    publisher, consumer, deleter = harness.client(), harness.client(), harness.client()
    publisher.declare("q")
    consume(consumer, "q")
    publisher.channel.select_tx()
    publisher.publish("q", b"1")
    publisher.ask_commit()
    delete(deleter, "q", if_empty=True)
    later = consume(harness.client(), "q", "later")
    harness.settle()
    assert refusals(deleter) == [NOT_EMPTY] and later == ["later"]
    assert consumer.bodies == [b"1"] and consumer.cancelled_tags == []


@pytest.mark.parametrize("passed", [True, False])
def test_the_primary_dies_before_an_if_empty_deletion_is_answered(harness: Harness, passed: bool) -> None:
    """Nobody is told; asked again, the next primary answers by what it holds."""
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
    client, answers = harness.client(), list[Status]()
    client.declare("q")
    client.publish("q", b"1")
    tag = got(client.get("q")).delivery_tag
    client.channel.select_dtx()
    client.channel.start_branch(xid, False, False)
    client.channel.ack(tag, False)
    client.channel.end_branch(xid, False, False)
    harness.broker.branch_operations.prepare(client.channel, xid, answers.append)
    harness.settle()
    assert answers == [Status.OK]
    return client


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize("rolled_back", [False, True])
def test_if_empty_and_what_a_prepared_branch_dequeues(rolled_back: bool, take_over: bool) -> None:
    """Locked, it does not keep the queue; given back before the deletion, it does: the stream has both in order."""
    harness, xid = ClusterHarness(WindowLimits()), Xid(1, b"x", b"")
    in_a_prepared_branch(harness, xid)
    if take_over:
        harness.crash(False)
    client, deleter, answers = harness.client(), harness.client(), list[Status]()
    client.channel.select_dtx()
    if rolled_back:
        harness.broker.branch_operations.rollback(client.channel, xid, answers.append)
    counts = delete(deleter, "q", if_empty=True)
    harness.settle()
    if rolled_back:
        assert answers == [Status.OK] and refusals(deleter) == [NOT_EMPTY]
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


def test_auto_delete_exchange_goes_with_the_primary_of_its_last_binding(harness: Harness) -> None:
    client = harness.client()
    client.declare("local", durable=False)
    client.declare("q")
    for name in ("x", "y", "z"):
        declare_exchange(harness, client, name, auto_delete=True)
    for source, queue in (("x", "local"), ("y", "local"), ("y", "q")):
        bind(harness, client, source, queue)
        harness.settle()
    harness.take_over()
    harness.settle()
    assert exchanges(harness) == {"y", "z"} == set(harness.broker.topology.exchanges) & {"x", "y", "z"}
    unbind(harness.client(), "y", "q")
    harness.settle()
    assert exchanges(harness) == {"z"}


# -- durable auto-delete exchanges


def test_auto_delete_exchange_is_gone_when_the_unbinding_is_answered(harness: Harness) -> None:
    """So what is declared behind that answer is another one, and stays."""
    client = harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "q")
    harness.settle()
    answers = unbind(client, "x", "q")
    harness.turn()
    harness.ledger.commit(1)
    assert answers == ["ok"] and exchanges(harness) == set() and "x" not in harness.broker.topology.exchanges
    declare_exchange(harness, client, "x", auto_delete=True)
    harness.take_over()
    harness.settle()
    assert exchanges(harness) == {"x"} and "x" in harness.broker.topology.exchanges


def test_nobody_is_told_of_a_binding_to_an_exchange_that_lapses(harness: Harness) -> None:
    """One client unbinds the last queue, another binds the next: one of them is first, for both of them."""
    client, other, declarer = harness.client(), harness.client(), harness.client()
    client.declare("q")
    client.declare("r")
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "q")
    harness.settle()
    gone = unbind(client, "x", "q")
    bound = bind(harness, other, "x", "r")
    declare_exchange(harness, declarer, "x", auto_delete=True)
    assert gone == ["ok"] and bound == [] and refusals(other) == [NO_EXCHANGE]
    assert exchanges(harness) == {"x"}, "declared behind the other, it stays"


def test_a_binding_made_before_the_last_one_goes_keeps_the_exchange(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    client.declare("q")
    client.declare("r")
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "q")
    harness.settle()
    bound = bind(harness, other, "x", "r")
    gone = unbind(client, "x", "q")
    harness.settle()
    assert gone == bound == ["ok"] and exchanges(harness) == {"x"}


def test_auto_delete_exchanges_lapse_upwards(harness: Harness) -> None:
    """With a queue goes what only led to it; what leads elsewhere too, also to what is not durable, stays."""
    client = harness.client()
    client.declare("q")
    client.declare("local", durable=False)
    for name in ("x", "y", "z"):
        declare_exchange(harness, client, name, auto_delete=True)
    request = BindRequest("y", "x", False, "")
    harness.broker.binding_operations.bind(client.channel, request, lambda: None)
    for source, queue in (("x", "q"), ("z", "q"), ("z", "local")):
        bind(harness, client, source, queue)
        harness.settle()
    assert exchanges(harness) == {"x", "y", "z"}
    delete(client, "q")
    harness.settle()
    assert exchanges(harness) == {"z"} == set(harness.broker.topology.exchanges) & {"x", "y", "z"}
    delete(client, "local")
    harness.settle()
    assert exchanges(harness) == set() and client.errors == []


def test_the_queue_goes_while_its_exchange_learns_of_it(harness: Harness) -> None:
    """A binding to a queue that is not durable waits for the stream; without its queue it keeps no exchange."""
    owner, client = harness.client(), harness.client()
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x", auto_delete=True)
    bound = bind(harness, owner, "x", "local")
    delete(client, "local")
    harness.settle()
    assert bound == [] and refusals(owner) == ["NOT_FOUND - no queue 'local' in vhost '/'"]
    assert exchanges(harness) == set() == set(harness.broker.topology.exchanges) & {"x"}


def test_exchange_delete_if_unused_is_judged_behind_the_bindings_before_it(harness: Harness) -> None:
    client, binder, deleter = harness.client(), harness.client(), harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x")
    bound = bind(harness, binder, "x", "q")
    deleted = delete_exchange(deleter, "x", if_unused=True)
    harness.settle()
    assert bound == ["ok"] and deleted == []
    assert refusals(deleter) == ["PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"]
    assert exchanges(harness) == {"x"}


@pytest.mark.parametrize("queue", ["q", "local"])
def test_no_binding_comes_to_an_exchange_that_is_being_deleted(harness: Harness, queue: str) -> None:
    client, binder, deleter = harness.client(), harness.client(), harness.client()
    client.declare("q")
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x")
    deleted = delete_exchange(deleter, "x", if_unused=True)
    bound = bind(harness, binder, "x", queue)
    harness.settle()
    assert deleted == ["ok"] and bound == [] and refusals(binder) == [NO_EXCHANGE]


# -- bindings


def test_bind_ok_for_a_binding_that_does_not_exist(harness: Harness) -> None:
    """The queue is deleted before the binding and declared anew behind it, and both pass together."""
    client, binder, publisher = harness.client(), harness.client(), harness.client()
    client.declare("q")
    counts = delete(client, "q")
    bound = bind(harness, binder, "amq.direct", "q")
    harness.turn()
    harness.ledger.commit(1)
    client.ask_declare("q")
    harness.settle()
    publisher.publish("", b"m", exchange="amq.direct", mandatory=True)
    harness.settle()
    assert counts == [0] and client.count("q") == (1 if bound else 0)
    assert (bound, refusals(binder)) in ((["ok"], []), ([], [NO_QUEUE]))


def test_what_the_stream_did_not_bind_is_told_so(harness: Harness) -> None:
    """Without any lock: a step behind another that took one of its ends."""
    client, binder = harness.client(), harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x")
    harness.broker.locks.hold = lambda *names: None  # type: ignore[method-assign]
    harness.broker.locks.release = lambda *names: None  # type: ignore[method-assign]
    delete(client, "q")
    bound = bind(harness, binder, "amq.direct", "q")
    client.ask_declare("r")
    harness.turn()
    harness.ledger.commit(1)
    client.ask_declare("q")
    harness.settle()
    assert bound == [] and refusals(binder) == [NO_QUEUE] and harness.content.configuration.bindings == []
