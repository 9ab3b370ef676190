"""Declarations: answered when durable, the same for every client, and local where they are not replicated."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.local_queue import LocalQueue
from tests.broker_plugin.embedded.harness import Client, Harness, properties


def bind(
    harness: Harness, client: Client, source: str, queue: str, key: str = "", arguments: dict[str, Any] | None = None
) -> list[str]:
    answers: list[str] = []
    request = BindRequest(source, queue, True, key, arguments or {})
    client.channel.attempt(
        partial(harness.broker.operations.bindings.bind, client.channel, request, lambda: answers.append("ok"))
    )
    return answers


def declare_exchange(harness: Harness, client: Client, name: str, durable: bool = True, **more: bool) -> None:
    request = ExchangeDeclare(name, "fanout", durable, **more)
    harness.broker.operations.exchanges.declare(client.channel, request, lambda: None)
    harness.settle()


def test_durable_queues_are_answered_at_the_commit_point(harness: Harness) -> None:
    client = harness.client()
    client.ask_declare("q")
    harness.turn()
    assert client.answers == [] and "q" not in harness.broker.topology.queues
    harness.settle()
    assert len(client.answers) == 1 and isinstance(harness.broker.topology.queues["q"], DurableQueue)


def test_local_queues_are_answered_at_once(harness: Harness) -> None:
    client = harness.client()
    client.ask_declare("transient", durable=False)
    client.ask_declare("exclusive", durable=True, exclusive=True)
    client.ask_declare("", durable=False)
    assert [answer.name for answer in client.answers] == ["transient", "exclusive", "amq.gen-n1"]
    assert all(isinstance(queue, LocalQueue) for queue in harness.broker.topology.queues.values())
    assert not harness.ledger.busy


def test_two_clients_declare_one_queue(harness: Harness) -> None:
    one, two = harness.client(), harness.client()
    one.ask_declare("q")
    two.ask_declare("q")
    harness.settle()
    assert len(one.answers) == len(two.answers) == 1
    assert harness.ledger.contents.configuration.last_id == 1, "the second one only looked"


def test_the_second_of_two_declarations_differs(harness: Harness) -> None:
    one, two = harness.client(), harness.client()
    one.ask_declare("q")
    two.ask_declare("q", durable=False)
    assert two.answers == [] and two.errors == []
    harness.settle()
    assert [error.code for error in two.errors] == [406]
    assert len(one.answers) == 1


def test_declared_while_it_is_deleted(harness: Harness) -> None:
    one, two = harness.client(), harness.client()
    one.declare("q")
    one.publish("q", b"old")
    harness.settle()
    counts: list[int] = []
    harness.broker.operations.deletions.delete(one.channel, "q", False, False, counts.append)
    two.ask_declare("q")
    harness.settle()
    assert counts == [1]
    assert two.answers[0].messages == 0 and two.drain("q") == []


def test_many_wait_for_one_name(harness: Harness) -> None:
    clients = [harness.client() for _ in range(5)]
    counts: list[int] = []
    clients[0].ask_declare("q")
    harness.broker.operations.deletions.delete(clients[1].channel, "q", False, False, counts.append)
    clients[2].ask_declare("q", auto_delete=True)
    harness.broker.operations.deletions.delete(clients[3].channel, "q", False, False, counts.append)
    clients[4].ask_declare("q", durable=False)
    harness.settle()
    assert counts == [0, 0] and all(len(clients[each].answers) == 1 for each in (0, 2, 4))
    assert isinstance(harness.broker.topology.queues["q"], LocalQueue)


def test_refused_declaration(harness: Harness) -> None:
    client = harness.client()
    harness.ledger.refuse = "too few nodes are ready"
    client.ask_declare("q")
    assert [error.reply_text for error in client.errors] == ["PRECONDITION_FAILED - too few nodes are ready"]
    harness.ledger.refuse = None
    harness.client().declare("q")


def test_delete_counts_what_was_there_in_the_end(harness: Harness) -> None:
    client, publisher = harness.client(), harness.client()
    client.declare("q")
    publisher.publish("q", b"1", b"2")
    counts: list[int] = []
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
    harness.settle()
    assert counts == [2]


def test_nothing_is_handed_out_while_a_queue_is_deleted(harness: Harness) -> None:
    client, consumer = harness.client(), harness.client()
    client.declare("q")
    client.publish("q", b"1")
    held = client.get("q")
    assert held is not None
    client.channel.reject(held.delivery_tag, False, True)
    counts: list[int] = []
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
    consumer.channel.consume("q", "c", False, False, {})
    harness.settle()
    assert counts == [1] and consumer.deliveries == [] == consumer.cancelled_tags
    assert [error.code for error in consumer.errors] == [404]


def test_unacked_messages_of_a_deleted_queue(harness: Harness) -> None:
    client = harness.client()
    client.declare("q")
    client.channel.consume("q", "c", False, False, {})
    client.publish("q", b"1", b"2")
    harness.settle()
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
    harness.settle()
    assert client.cancelled_tags == ["c"]
    client.channel.ack(1, False)
    client.channel.reject(2, False, True)
    harness.settle()
    assert client.errors == []


def test_auto_delete_queue_declared_again_keeps_the_new_one(harness: Harness) -> None:
    client = harness.client()
    client.declare("q", auto_delete=True)
    client.channel.consume("q", "c", False, False, {})
    client.channel.cancel("c")
    client.ask_declare("q", auto_delete=True)
    harness.settle()
    assert "q" in harness.broker.topology.queues and client.errors == []


def test_auto_delete_queue_with_a_new_consumer_stays(harness: Harness) -> None:
    client = harness.client()
    client.declare("q", auto_delete=True)
    client.channel.consume("q", "c", False, False, {})
    counts: list[int] = []
    harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    client.channel.cancel("c")
    client.channel.consume("q", "d", False, False, {})
    harness.settle()
    assert counts == [0] and "q" in harness.broker.topology.queues and client.cancelled_tags == []


def test_exclusive_queues_end_with_their_connection(harness: Harness) -> None:
    connection = harness.connect()
    client = harness.client(connection)
    client.declare("mine", exclusive=True)
    bind(harness, client, "amq.fanout", "mine")
    client.channel.session.close()
    assert "mine" not in harness.broker.topology.queues
    other = harness.client()
    other.publish("", b"x", exchange="amq.fanout", mandatory=True)
    assert other.returns == [b"x"]


def test_a_binding_is_replicated_when_both_ends_are(harness: Harness) -> None:
    client = harness.client()
    client.declare("durable")
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x")
    declare_exchange(harness, client, "y", durable=False)
    for source in ("x", "y", "amq.fanout"):
        for queue in ("durable", "local"):
            bind(harness, client, source, queue)
    harness.settle()
    stored = {(each.source, each.destination) for each in harness.ledger.contents.configuration.bindings}
    assert stored == {("x", "durable"), ("amq.fanout", "durable")}
    for exchange in ("x", "y", "amq.fanout"):
        client.publish("", b"m", exchange=exchange)
    harness.settle()
    assert client.count("durable") == client.count("local") == 3
    harness.take_over()
    client = harness.client()
    client.publish("", b"m", exchange="x")
    harness.settle()
    assert client.count("durable") == 4 and "y" not in harness.broker.topology.exchanges


def publish_headers(client: Client, body: bytes, headers: dict[str, Any]) -> None:
    client.channel.publish("amq.headers", "", False, properties(headers), body)


def test_bindings_that_differ_in_the_type_of_an_argument_are_two(harness: Harness) -> None:
    """1 equals True in Python, and is another value in AMQP: one of two bindings goes, and it is the right one."""
    client = harness.client()
    client.declare("q")
    for value in (1, True):
        bind(harness, client, "amq.headers", "q", arguments={"a": value})
    harness.settle()
    request = BindRequest("amq.headers", "q", True, "", {"a": True})
    harness.broker.operations.bindings.unbind(client.channel, request, lambda: None)
    harness.settle()
    for value in (1, True):
        publish_headers(client, b"%a" % value, {"a": value})
    harness.settle()
    assert client.drain("q") == [b"1"]


def test_bindings_that_differ_in_the_type_of_an_argument_survive_a_take_over(harness: Harness) -> None:
    client = harness.client()
    client.declare("q")
    for value in (1, True):
        bind(harness, client, "amq.headers", "q", arguments={"a": value, "b": value})
        bind(harness, client, "amq.headers", "q", arguments={"b": value, "a": value})
    harness.settle()
    assert len(harness.ledger.contents.configuration.bindings) == 2
    harness.take_over()
    client = harness.client()
    for value in (1, True):
        publish_headers(client, b"%a" % value, {"a": value, "b": value})
    harness.settle()
    assert client.drain("q") == [b"1", b"True"]


def test_bound_to_a_queue_that_is_being_deleted(harness: Harness) -> None:
    client, deleter = harness.client(), harness.client()
    client.declare("q")
    harness.broker.operations.deletions.delete(deleter.channel, "q", False, False, lambda count: None)
    answers = bind(harness, client, "amq.direct", "q", "k")
    harness.settle()
    assert answers == [] and [error.code for error in client.errors] == [404]


def test_publish_waits_for_no_declaration_but_a_channel_does(harness: Harness) -> None:
    client = harness.client()
    client.publish("q", b"before")
    client.declare("q")
    assert client.count("q") == 0


def test_routes_follow_every_change(harness: Harness) -> None:
    client = harness.client()
    client.declare("q")
    client.publish("k", b"1", exchange="amq.direct", mandatory=True)
    bind(harness, client, "amq.direct", "q", "k")
    harness.settle()
    client.publish("k", b"2", exchange="amq.direct", mandatory=True)
    harness.settle()
    assert client.drain("q") == [b"2"]
    request = BindRequest("amq.direct", "q", True, "k")
    harness.broker.operations.bindings.unbind(client.channel, request, lambda: None)
    harness.settle()
    client.publish("k", b"unbound", exchange="amq.direct", mandatory=True)
    bind(harness, client, "amq.direct", "q", "k")
    harness.settle()
    client.publish("k", b"bound again", exchange="amq.direct", mandatory=True)
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
    harness.settle()
    client.publish("k", b"3", exchange="amq.direct", mandatory=True)
    client.publish("q", b"4", mandatory=True)
    assert client.returns == [b"1", b"unbound", b"3", b"4"]


def test_auto_delete_exchange_goes_through_the_stream(harness: Harness) -> None:
    client = harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "q")
    harness.settle()
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
    harness.settle()
    assert "x" not in harness.ledger.contents.configuration.exchanges
    assert "x" not in harness.broker.topology.exchanges


def test_bound_to_an_exchange_that_is_being_deleted(harness: Harness) -> None:
    """The binding must not come back with a later exchange of that name, nor after a take-over."""
    client, deleter = harness.client(), harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x")
    harness.broker.operations.exchanges.delete(deleter.channel, "x", False, lambda: None)
    answers = bind(harness, client, "x", "q")
    harness.settle()
    assert answers == [] and [error.code for error in client.errors] == [404]
    declare_exchange(harness, deleter, "x")
    harness.take_over()
    client = harness.client()
    client.publish("", b"m", exchange="x", mandatory=True)
    assert client.returns == [b"m"]
