"""What RabbitMQ acts on and this broker does not: refused with a text that names it, or accepted and told once."""

from __future__ import annotations

from typing import Any

import pytest

from broker_plugin.embedded import unsupported
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare, check_queue_arguments
from broker_plugin.embedded.unsupported import Unsupported, unsupported_of_consumer, unsupported_of_queue
from tests.broker_plugin.embedded.harness import Client, Harness, properties

ACTED_ON: dict[str, Any] = {
    "x-consumer-timeout": 60_000,
    "x-dead-letter-exchange": "dead",
    "x-max-length": 5,
    "x-max-length-bytes": 5000,
    "x-max-priority": 9,
    "x-message-ttl": 1000,
    "x-overflow": "reject-publish",
    "x-queue-leader-locator": "balanced",
    "x-queue-master-locator": "min-masters",
    "x-single-active-consumer": True,
}
OF_QUORUM: dict[str, Any] = {
    "x-dead-letter-strategy": "at-least-once",
    "x-delivery-limit": 3,
    "x-quorum-initial-group-size": 3,
}
WITHOUT_EFFECT: list[dict[str, Any]] = [
    {"x-colour": "red"},
    {"x-queue-mode": "lazy"},
    {"x-queue-version": 2},
    {"x-queue-type": "classic"},
    {"x-queue-type": "quorum"},
    {"x-queue-type": "quorum", "x-delivery-limit": -1},
    {"x-queue-type": "quorum", "x-max-in-memory-length": 10},
    {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-most-once"},
    {"x-overflow": "drop-head"},
    {"x-single-active-consumer": False},
    {"x-queue-leader-locator": "client-local"},
]
WITH_PRIORITY = b"\x18\x00\x02\x05"
"""Raw properties: delivery mode 2 and priority 5"""


class Warnings(list[tuple[str, str, str]]):
    """What was told."""

    def __call__(self, kind: str, name: str, what: str) -> None:
        self.append((kind, name, what))


def declared_with(client: Client, arguments: dict[str, Any], durable: bool = True) -> str:
    """The text that refuses a declaration of "q", or "" if it is accepted."""
    client.ask_declare("q", durable, arguments=arguments)
    client.harness.settle()
    return client.errors[0].text if client.errors else ""


def consume(client: Client, arguments: dict[str, Any]) -> str:
    client.channel.consume("q", "tag", False, False, arguments)
    client.harness.settle()
    return client.errors[0].text if client.errors else ""


def publish_with_priority(client: Client, queue: str = "q") -> None:
    client.channel.publish("", queue, False, WITH_PRIORITY, b"urgent")


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("name", ACTED_ON)
def test_an_argument_that_rabbitmq_acts_on_is_refused_by_its_name(name: str, durable: bool) -> None:
    harness = Harness()
    client = harness.client()
    text = declared_with(client, {name: ACTED_ON[name]}, durable)
    assert client.errors[0].code == 406 and not client.errors[0].hard
    assert text.startswith(f"unsupported arg '{name}' for queue 'q' in vhost '/'")
    assert "q" not in harness.broker.topology.queues


@pytest.mark.parametrize("name", OF_QUORUM)
def test_so_is_one_of_quorum_queues(name: str) -> None:
    assert f"arg '{name}'" in declared_with(Harness().client(), {"x-queue-type": "quorum", name: OF_QUORUM[name]})


def test_one_text_names_all_arguments() -> None:
    text = declared_with(
        Harness().client(), {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k", "x-message-ttl": 0}
    )
    assert "args 'x-dead-letter-exchange', 'x-dead-letter-routing-key', 'x-message-ttl' for" in text


@pytest.mark.parametrize("arguments", WITHOUT_EFFECT, ids=str)
def test_what_has_no_effect_in_rabbitmq_is_accepted(arguments: dict[str, Any]) -> None:
    warnings = Warnings()
    assert declared_with(Harness().client(), arguments) == ""
    assert declared_with(Harness(warned=warnings).client(), arguments) == "" and not warnings


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-delivery-limit": 3}, "'x-delivery-limit' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"),
        ({"x-max-age": "1D"}, "'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"),
        ({"x-queue-type": "quorum", "x-max-priority": 2}, "'x-max-priority' for queue 'q' in vhost '/' of queue type "),
        ({"x-queue-type": "quorum", "x-queue-mode": "lazy"}, "of queue type rabbit_quorum_queue"),
        ({"x-queue-version": 3}, "unsupported queue version"),
        ({"x-queue-leader-locator": "near"}, "invalid_queue_locator_arg"),
        ({"x-queue-type": "quorum", "x-dead-letter-strategy": "never"}, "invalid_dlx_strategy"),
        ({"x-queue-type": "quorum", "x-quorum-initial-group-size": 0}, "{value_zero,0}"),
        ({"x-message-ttl": -1}, "{value_negative,-1}"),
    ],
    ids=str,
)
def test_what_rabbitmq_refuses_is_refused_in_its_words_also_where_the_rest_is_only_warned_of(
    arguments: dict[str, Any], text: str
) -> None:
    for harness in (Harness(), Harness(warned=Warnings())):
        said = declared_with(harness.client(), arguments)
        assert said.startswith("invalid arg") and text in said


def test_a_queue_that_is_there_keeps_working_and_can_be_declared_again() -> None:
    harness = Harness(warned=Warnings())
    arguments = {"x-message-ttl": 1000, "x-max-priority": 3}
    declared_with(harness.client(), arguments)
    harness.broker.unsupported = Unsupported()
    client = harness.client()
    assert declared_with(client, arguments) == ""
    client.publish("q", b"one")
    harness.settle()
    assert client.drain("q") == [b"one"] and not client.errors
    assert declared_with(client, {**arguments, "x-message-ttl": 5}).startswith("inequivalent arg 'x-message-ttl'")


def test_with_warnings_all_of_it_is_accepted_and_each_queue_told_once() -> None:
    warnings = Warnings()
    harness = Harness(warned=warnings)
    for _ in range(3):
        client = harness.client()
        assert declared_with(client, {"x-message-ttl": 1000, "x-max-priority": 3}) == ""
        assert consume(client, {"x-priority": 7}) == ""
        publish_with_priority(client)
        harness.settle()
        client.channel.close()
        harness.broker.operations.deletions.delete(harness.client().channel, "q", False, False, lambda count: None)
        harness.settle()
    assert warnings == [
        ("queue", "q", "args 'x-max-priority', 'x-message-ttl'"),
        ("queue", "q", "arg 'x-priority'"),
        ("queue", "q", "property 'priority'"),
    ]


def test_what_is_remembered_of_warnings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsupported, "KEPT", 3)
    warnings = Warnings()
    met = Unsupported(warnings)
    for name in ("a", "b", "c", "a", "d", "a"):
        met.meet("queue", name, "x")
    assert [name for _, name, _ in warnings] == ["a", "b", "c", "d", "a"]


class TestConsumers:
    @pytest.mark.parametrize("name", ["x-priority", "x-consumer-timeout"])
    def test_an_argument_that_rabbitmq_acts_on_is_refused(self, name: str) -> None:
        client = Harness().client()
        client.declare("q")
        assert consume(client, {name: 10}).startswith(f"unsupported arg '{name}' for queue 'q'")
        assert client.errors[0].code == 406

    @pytest.mark.parametrize("arguments", [{"x-priority": 0}, {"x-cancel-on-ha-failover": True}, {"x-e": 1}], ids=str)
    def test_what_has_no_effect_is_accepted(self, arguments: dict[str, Any]) -> None:
        client = Harness().client()
        client.declare("q")
        assert consume(client, arguments) == ""

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"x-priority": "high"}, "invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer"),
            ({"x-stream-offset": "first"}, "'x-stream-offset' for queue 'q' in vhost '/' of queue type rabbit_classic"),
        ],
        ids=str,
    )
    def test_what_rabbitmq_refuses_is_refused_in_its_words(self, arguments: dict[str, Any], text: str) -> None:
        client = Harness(warned=Warnings()).client()
        client.declare("q")
        assert text in consume(client, arguments)


class TestPriorities:
    """A message's priority means something only in a queue that was declared with ``x-max-priority``."""

    def test_it_is_accepted_in_any_other_queue(self) -> None:
        client = Harness().client()
        client.declare("q")
        publish_with_priority(client)
        client.harness.settle()
        assert client.drain("q") == [b"urgent"]

    @pytest.mark.parametrize("durable", [True, False])
    @pytest.mark.parametrize("transaction", [True, False])
    def test_it_is_refused_in_a_stored_queue_with_priorities(self, durable: bool, transaction: bool) -> None:
        harness = Harness(warned=Warnings())
        declared_with(harness.client(), {"x-max-priority": 9}, durable)
        harness.broker.unsupported = Unsupported()
        client = harness.client()
        if transaction:
            client.channel.mode.select_tx()
        with pytest.raises(AmqpError, match="unsupported property 'priority' for queue 'q'") as caught:
            publish_with_priority(client)
        assert caught.value.code == 406
        client.channel.publish("", "q", False, b"\x08\x00\x00", b"priority 0")
        assert client.channel.mode.work is None or client.ask_commit() is not None
        harness.settle()
        assert harness.client().drain("q") == [b"priority 0"]

    def test_it_is_accepted_again_when_the_queue_is_gone(self) -> None:
        harness = Harness(warned=Warnings())
        client = harness.client()
        declared_with(client, {"x-max-priority": 9})
        harness.broker.unsupported = Unsupported()
        harness.broker.operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
        harness.settle()
        client.declare("q")
        publish_with_priority(client)
        harness.settle()
        assert client.count("q") == 1

    def test_it_is_found_behind_any_other_properties(self) -> None:
        harness = Harness(warned=Warnings())
        declared_with(harness.client(), {"x-max-priority": 9})
        harness.broker.unsupported = Unsupported()
        channel = harness.client().channel
        headers = properties({"a": "long" * 100})[2:]
        before = {0xE8: b"\x01t\x02ut" + headers, 0x38: headers + b"\x02", 0x08: b""}
        for flags, values in before.items():
            with pytest.raises(AmqpError, match="priority"):
                channel.publish("", "q", False, bytes((flags, 0)) + values + b"\x05", b"")
        channel.publish("", "q", False, b"\x38\x00" + headers + b"\x02\x00", b"")


def test_an_alternate_exchange_works_and_one_that_is_no_name_is_refused_as_by_rabbitmq() -> None:
    harness = Harness()
    client = harness.client()
    exchanges, answered = harness.broker.operations.exchanges, []
    request = ExchangeDeclare("x", "direct", arguments={"alternate-exchange": "amq.fanout"})
    exchanges.declare(client.channel, request, lambda: answered.append("ok"))
    assert answered and harness.broker.topology.exchanges["x"].alternate == "amq.fanout"
    with pytest.raises(AmqpError, match="invalid type 'signedint' for arg 'alternate-exchange' in exchange 'y'"):
        request = ExchangeDeclare("y", "direct", arguments={"alternate-exchange": 5})
        exchanges.declare(client.channel, request, lambda: None)


def test_arguments_that_are_kept_are_told_apart_by_what_they_would_do() -> None:
    assert unsupported_of_queue({"x-queue-mode": "lazy", "x-overflow": "drop-head", "other": 1}) == []
    assert unsupported_of_queue({**ACTED_ON, **OF_QUORUM}) == sorted({**ACTED_ON, **OF_QUORUM})
    assert unsupported_of_consumer({"x-priority": False}) == []


@pytest.mark.parametrize("name", ["x-max-length", "x-expires", "x-message-ttl", "x-max-priority"])
@pytest.mark.parametrize(("value", "kind"), [(True, "bool"), (1.5, "double")])
def test_a_truth_value_is_no_number(name: str, value: object, kind: str) -> None:
    """RabbitMQ's text, which names the argument's fault, and not that it is unsupported."""
    with pytest.raises(AmqpError, match=f"invalid arg '{name}' .*expected integer, got {kind}"):
        check_queue_arguments(QueueDeclare("q", arguments={name: value}))
