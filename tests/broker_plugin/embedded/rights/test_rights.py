"""What a user may do: each operation needs its permission and no other, and every change holds at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from tests.broker_plugin.embedded.harness import Client, Harness
from tests.broker_plugin.embedded.rights.ruled import (
    OPERATIONS,
    Ruled,
    binding,
    declare_exchange,
    fresh,
    made,
    nothing,
    publish,
    tried,
)
from txobserver.access import add_user_step, delete_user_step
from txobserver.rules import (
    PERMISSION,
    TOPIC_PERMISSION,
    Permission,
    Rule,
    TopicPermission,
    clear_rule_step,
    set_rule_step,
)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_needs_its_permissions_and_no_others(name: str) -> None:
    """With all of them it is carried out, and without any one of them it is refused in RabbitMQ's words."""
    operation, needed = OPERATIONS[name]
    patterns = {
        what: f"^({'|'.join(n for w, _, n in needed if w == what)})$" for what in ("configure", "write", "read")
    }
    harness = fresh(patterns)
    assert tried(harness, harness.user(), operation) is None
    for what, kind, of in needed:
        others = "|".join(n for w, _, n in needed if w == what and n != of)
        harness = fresh({**patterns, what: f"^({others})$" if others else ""})
        expected = f"{what} access to {kind} '{of}' in vhost '/' refused for user 'u'"
        assert tried(harness, harness.user(), operation) == expected


def test_the_permission_of_a_destination_is_asked_for_before_it_is_found_to_be_the_default_exchange() -> None:
    """In this order RabbitMQ 3.10 answers."""
    harness = fresh({"read": ".*"})
    text = "write access to exchange 'amq.default' in vhost '/' refused for user 'u'"
    assert tried(harness, harness.user(), binding("bind", "e", "", False)) == text
    harness.allow(read=".*", write=".*")
    text = "operation not permitted on the default exchange"
    assert tried(harness, harness.user(), binding("bind", "e", "", False)) == text


def test_to_look_needs_no_permission(ruled: Ruled) -> None:
    ruled.allow()
    client = ruled.user()
    assert client.count("q") == 0
    ruled.broker.operations.exchanges.declare_passive("e")


def test_a_user_without_permissions_does_not_connect_and_a_client_of_this_process_may_do_everything(
    ruled: Ruled,
) -> None:
    with pytest.raises(AmqpError, match=r"^access to vhost '/' refused for user 'u'$") as raised:
        ruled.connect("u")
    assert raised.value.code == 530
    for operation, _ in OPERATIONS.values():
        harness = made()
        assert tried(harness, harness.root, operation) is None


def test_while_the_cluster_keeps_no_users_all_may_do_everything() -> None:
    harness = Harness()
    harness.broker.rights.access = lambda: harness.ledger.contents.access
    client = harness.client(harness.connect("own"))
    client.declare("q")
    client.publish("q", b"x")
    harness.settle()
    assert client.drain("q") == [b"x"]


def test_a_permission_that_is_taken_away_is_taken_from_open_connections(ruled: Ruled) -> None:
    """What was allowed before is not remembered past the change (``permission cached past a change``)."""
    ruled.allow(".*", ".*", ".*")
    client, other = ruled.user(), ruled.user()
    for each in (client, other):
        each.publish("k", b"x", exchange="e")
        assert tried(ruled, each, OPERATIONS["get"][0]) is None
    ruled.allow("", "", "")
    assert tried(ruled, client, publish("e")) == "write access to exchange 'e' in vhost '/' refused for user 'u'"
    assert tried(ruled, other, OPERATIONS["get"][0]) == "read access to queue 'q' in vhost '/' refused for user 'u'"
    ruled.do(clear_rule_step(PERMISSION, "/", "u"))
    with pytest.raises(AmqpError):
        ruled.connect("u")
    ruled.allow("", "e", "")
    assert tried(ruled, ruled.user(), publish("e")) is None


def test_topic_permissions_are_looked_at_for_topic_exchanges_only_and_by_their_keys(ruled: Ruled) -> None:
    ruled.allow("", ".*", ".*")
    ruled.allow_topic(write="^a", read="^b", exchange="t")
    ruled.allow_topic(write="^a", read="^b", exchange="e")
    client = ruled.user()
    assert tried(ruled, client, publish("t", "a.x")) is None
    assert tried(ruled, client, publish("e", "x")) is None, "the exchange is no topic exchange"
    assert tried(ruled, client, publish("t", "a.y")) is None
    refused = "write access to topic 'x' in exchange 't' in vhost '/' refused for user 'u'"
    assert tried(ruled, client, publish("t", "x")) == refused
    assert tried(ruled, ruled.user(), binding("bind", "t", "q", True, "b")) is None
    refused = "read access to topic 'a' in exchange 't' in vhost '/' refused for user 'u'"
    assert tried(ruled, ruled.user(), binding("bind", "t", "q", True, "a")) == refused
    assert tried(ruled, ruled.user(), binding("bind", "e", "q", True, "a")) is None
    ruled.do(clear_rule_step(TOPIC_PERMISSION, "/", "u", "t"))
    assert tried(ruled, ruled.user(), publish("t", "x")) is None


def test_an_exchange_that_is_declared_anew_as_a_topic_exchange_has_its_permission_looked_at(ruled: Ruled) -> None:
    """Where its keys were free before, on the same channel."""
    ruled.allow("", ".*", "")
    ruled.allow_topic(write="^a", exchange="e")
    client = ruled.user()
    assert tried(ruled, client, publish("e", "x")) is None
    exchanges = ruled.broker.operations.exchanges
    exchanges.delete(ruled.root.channel, "e", False, nothing)
    ruled.settle()
    exchanges.declare(ruled.root.channel, ExchangeDeclare("e", "topic", True), nothing)
    ruled.settle()
    assert tried(ruled, client, publish("e", "x")) is not None


def test_a_topic_permission_that_comes_later_is_looked_at_on_open_channels(ruled: Ruled) -> None:
    ruled.allow("", ".*", "")
    client = ruled.user()
    assert tried(ruled, client, publish("t", "x")) is None
    ruled.allow_topic(write="^a", exchange="t")
    assert tried(ruled, client, publish("t", "x")) is not None


def test_a_topic_permission_may_name_its_user_and_no_user_is_a_pattern(ruled: Ruled) -> None:
    ruled.do(add_user_step(".*", "hash"))
    for user in ("u", ".*"):
        ruled.do(
            set_rule_step(Rule(PERMISSION, "/", user, "", Permission("", ".*", ""))),
            set_rule_step(Rule(TOPIC_PERMISSION, "/", user, "t", TopicPermission("^{username}-{vhost}$", ""))),
        )
    assert tried(ruled, ruled.user(), publish("t", "u-/")) is None
    assert tried(ruled, ruled.user(), publish("t", "v-/")) is not None
    assert tried(ruled, ruled.client(ruled.connect(".*")), publish("t", ".*-/")) is None
    assert tried(ruled, ruled.client(ruled.connect(".*")), publish("t", "u-/")) is not None


def test_an_empty_pattern_fits_no_name_and_what_is_no_pattern_fits_nothing(ruled: Ruled) -> None:
    ruled.allow("", "(", "")
    assert tried(ruled, ruled.user(), publish("e")) is not None
    assert tried(ruled, ruled.user(), OPERATIONS["get"][0]) is not None


def test_a_deleted_user_may_do_nothing_while_its_connections_end(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    client = ruled.user()
    client.publish("k", b"x", exchange="e")
    ruled.do(delete_user_step("u"))
    assert tried(ruled, client, publish("e")) is not None


WAITING = ["delete a queue", "purge", "get", "consume", "bind a queue", "unbind a queue", "delete an exchange"]


@pytest.mark.parametrize("name", WAITING)
def test_allowed_when_it_came(name: str) -> None:
    """An operation waits for another one, or for the client's own publishes, and the permission goes meanwhile."""
    harness = fresh({"configure": ".*", "write": ".*", "read": ".*"})
    client, operation = harness.user(), OPERATIONS[name][0]
    harness.broker.locks.hold(("queue", "q"), ("exchange", "e"))
    client.publish("q", b"mine")
    operation(client)
    assert not client.errors and not client.answers
    harness.allow()
    harness.broker.locks.release(("queue", "q"), ("exchange", "e"))
    harness.settle()
    assert [error.code for error in client.errors] == [403]
    assert "q" in harness.broker.topology.queues and "e" in harness.broker.topology.exchanges
    assert harness.root.count("q") == 1


@pytest.mark.parametrize("operation", [lambda c: c.ask_declare("late"), declare_exchange("late", durable=True)])
def test_allowed_to_declare_when_it_came(operation: Callable[[Client], None]) -> None:
    harness = fresh({"configure": ".*"})
    client = harness.user()
    harness.broker.locks.hold(("queue", "late"), ("exchange", "late"))
    operation(client)
    harness.allow()
    harness.broker.locks.release(("queue", "late"), ("exchange", "late"))
    harness.settle()
    assert [error.code for error in client.errors] == [403]
    assert "late" not in {*harness.broker.topology.queues, *harness.broker.topology.exchanges}
