"""What a user may do: each operation needs its permission and no other, and every change holds at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from tests.broker_plugin.embedded.harness import Client, Harness
from txobserver.access import add_user_step, delete_user_step, found_users_step
from txobserver.events import Configure
from txobserver.rules import (
    MAX_CHANNELS,
    MAX_CONNECTIONS,
    MAX_QUEUES,
    PERMISSION,
    TOPIC_PERMISSION,
    USER_LIMIT,
    VHOST,
    VHOST_LIMIT,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    Vhost,
    clear_rule_step,
    set_rule_step,
)


class Ruled(Harness):
    """A broker whose cluster keeps users: ``u``, who may do nothing, and a client of this process beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.rights.access = lambda: self.ledger.contents.access
        self.do(found_users_step([], ""), add_user_step("u", "hash"))
        self.root = self.client()

    def do(self, *steps: Configure) -> None:
        """These steps pass the commit point."""
        for step in steps:
            errors: list[str | None] = []
            self.ledger.configure(step, errors.append)
            self.settle()
            assert errors == [None]

    def allow(self, configure: str = "", write: str = "", read: str = "") -> None:
        self.do(set_rule_step(Rule(PERMISSION, "/", "u", "", Permission(configure, write, read))))

    def allow_topic(self, write: str = "", read: str = "", exchange: str = "amq.topic") -> None:
        self.do(set_rule_step(Rule(TOPIC_PERMISSION, "/", "u", exchange, TopicPermission(write, read))))

    def limit(self, kind: str, name: str, most: int) -> None:
        vhost, of = ("", "u") if kind == USER_LIMIT else ("/", "/")
        self.do(set_rule_step(Rule(kind, vhost, of, name, Limit(most))))

    def user(self) -> Client:
        return self.client(self.connect("u"))


def made() -> Ruled:
    harness = Ruled()
    harness.root.declare("q")
    for name, kind in (("e", "direct"), ("f", "fanout"), ("t", "topic")):
        harness.broker.operations.exchanges.declare(harness.root.channel, ExchangeDeclare(name, kind, True), nothing)
    harness.settle()
    return harness


@pytest.fixture
def ruled() -> Ruled:
    return made()


def nothing(*answer: Any) -> None:
    pass


def tried(harness: Ruled, client: Client, operation: Callable[[Client], None]) -> str | None:
    """Why an operation is refused; None where it is carried out."""
    try:
        operation(client)
    except AmqpError as error:
        assert error.code == 403
        return error.text
    harness.settle()
    return client.errors[0].text if client.errors else None


def declare_exchange(name: str, **more: Any) -> Callable[[Client], None]:
    request = ExchangeDeclare(name, "direct", **more)
    return lambda client: client.harness.broker.operations.exchanges.declare(client.channel, request, nothing)


def binding(operation: str, source: str, destination: str, to_queue: bool, key: str = "k") -> Callable[[Client], None]:
    request = BindRequest(source, destination, to_queue, key)
    return lambda client: getattr(client.harness.broker.operations.bindings, operation)(
        client.channel, request, nothing
    )


def publish(exchange: str, key: str = "k") -> Callable[[Client], None]:
    return lambda client: client.publish(key, b"x", exchange=exchange)


ALTERNATE = {"alternate-exchange": "f"}
OPERATIONS: dict[str, tuple[Callable[[Client], None], list[tuple[str, str, str]]]] = {
    "declare a queue": (lambda c: c.ask_declare("new"), [("configure", "queue", "new")]),
    "declare a local queue": (lambda c: c.ask_declare("new", False), [("configure", "queue", "new")]),
    "declare a queue again": (lambda c: c.ask_declare("q"), [("configure", "queue", "q")]),
    "declare an unnamed queue": (lambda c: c.ask_declare("", False), [("configure", "queue", "amq.gen-n1")]),
    "delete a queue": (
        lambda c: c.harness.broker.operations.deletions.delete(c.channel, "q", False, False, nothing),
        [("configure", "queue", "q")],
    ),
    "purge": (lambda c: c.harness.broker.operations.queues.purge(c.channel, "q", nothing), [("read", "queue", "q")]),
    "get": (lambda c: c.channel.get("q", False, nothing), [("read", "queue", "q")]),
    "consume": (lambda c: c.channel.consume("q", "", False, False, {}), [("read", "queue", "q")]),
    "declare an exchange": (declare_exchange("new"), [("configure", "exchange", "new")]),
    "declare an exchange with another": (
        declare_exchange("new", arguments=ALTERNATE),
        [("configure", "exchange", "new"), ("read", "exchange", "new"), ("write", "exchange", "f")],
    ),
    "delete an exchange": (
        lambda c: c.harness.broker.operations.exchanges.delete(c.channel, "e", False, nothing),
        [("configure", "exchange", "e")],
    ),
    "bind a queue": (binding("bind", "e", "q", True), [("write", "queue", "q"), ("read", "exchange", "e")]),
    "unbind a queue": (binding("unbind", "e", "q", True), [("write", "queue", "q"), ("read", "exchange", "e")]),
    "bind an exchange": (binding("bind", "e", "f", False), [("write", "exchange", "f"), ("read", "exchange", "e")]),
    "unbind an exchange": (binding("unbind", "e", "f", False), [("write", "exchange", "f"), ("read", "exchange", "e")]),
    "publish": (publish("e"), [("write", "exchange", "e")]),
    "publish to a queue": (publish("", "q"), [("write", "exchange", "amq.default")]),
    "publish to a topic": (publish("t"), [("write", "exchange", "t")]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_needs_its_permissions_and_no_others(name: str) -> None:
    """With all of them it is carried out, and without any one of them it is refused in RabbitMQ's words."""
    operation, needed = OPERATIONS[name]
    patterns = {
        what: f"^({'|'.join(n for w, _, n in needed if w == what)})$" for what in ("configure", "write", "read")
    }
    harness = _fresh(patterns)
    assert tried(harness, harness.user(), operation) is None
    for what, kind, of in needed:
        others = "|".join(n for w, _, n in needed if w == what and n != of)
        harness = _fresh({**patterns, what: f"^({others})$" if others else ""})
        expected = f"{what} access to {kind} '{of}' in vhost '/' refused for user 'u'"
        assert tried(harness, harness.user(), operation) == expected


def _fresh(patterns: dict[str, str]) -> Ruled:
    harness = made()
    harness.allow(**patterns)
    return harness


def test_the_permission_of_a_destination_is_asked_for_before_it_is_found_to_be_the_default_exchange() -> None:
    """In this order RabbitMQ 3.10 answers."""
    harness = _fresh({"read": ".*"})
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


def test_a_user_has_so_many_connections_and_channels_at_a_time(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 2)
    ruled.limit(USER_LIMIT, MAX_CHANNELS, 3)
    first, second = ruled.user(), ruled.user()
    text = r"^connection refused for user 'u': user connection limit \(2\) is reached$"
    with pytest.raises(AmqpError, match=text) as raised:
        ruled.connect("u")
    assert raised.value.code == 530
    session = second.channel.session
    third = session.open_channel(Client(ruled))  # type: ignore[attr-defined]
    text = r"^number of channels opened for user 'u' has reached the maximum allowed user limit of \(3\)$"
    with pytest.raises(AmqpError, match=text) as raised:
        session.open_channel(Client(ruled))  # type: ignore[attr-defined]
    assert raised.value.code == 530 and raised.value.hard
    third.close()
    third.close()
    ruled.settle()
    session.open_channel(Client(ruled))  # type: ignore[attr-defined]
    first.channel.session.close()  # type: ignore[attr-defined]
    ruled.settle()
    ruled.connect("u")
    ruled.do(clear_rule_step(USER_LIMIT, "", "u", MAX_CONNECTIONS))
    ruled.limit(USER_LIMIT, MAX_CHANNELS, -1)
    for _ in range(5):
        ruled.user()


def test_a_limit_of_none_lets_no_connection_in_and_others_as_before(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 0)
    with pytest.raises(AmqpError):
        ruled.connect("u")
    ruled.connect()


def test_a_virtual_host_has_so_many_connections_of_all_users(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.do(add_user_step("v", "h"), set_rule_step(Rule(PERMISSION, "/", "v", "", Permission("", "", ""))))
    ruled.limit(VHOST_LIMIT, MAX_CONNECTIONS, 3)
    first = ruled.user()
    ruled.connect("v")
    text = r"^access to vhost '/' refused for user 'v': connection limit \(3\) is reached$"
    with pytest.raises(AmqpError, match=text) as raised:
        ruled.connect("v")
    assert raised.value.code == 530
    first.channel.session.close()  # type: ignore[attr-defined]
    ruled.settle()
    ruled.connect("v")


def test_a_virtual_host_has_so_many_queues_with_those_that_are_on_their_way(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(VHOST_LIMIT, MAX_QUEUES, 3)
    client, late = ruled.user(), ruled.user()
    client.ask_declare("a")
    client.ask_declare("b")
    late.ask_declare("c")
    ruled.settle()
    text = "cannot declare queue 'c': queue limit in vhost '/' (3) is reached"
    assert [(error.code, error.text) for error in late.errors] == [(406, text)] and not client.errors
    client.declare("a")
    ruled.broker.operations.deletions.delete(client.channel, "a", False, False, nothing)
    ruled.settle()
    local = ruled.user()
    local.declare("c", False)
    local.ask_declare("d", False)
    assert [error.code for error in local.errors] == [406]


def test_counts_begin_anew_with_a_new_primary(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 1)
    ruled.limit(VHOST_LIMIT, MAX_QUEUES, 3)
    before = ruled.user()
    before.ask_declare("lost")
    session = before.channel.session
    ruled.take_over()
    client = ruled.user()
    session.close()  # type: ignore[attr-defined]
    ruled.settle()
    with pytest.raises(AmqpError):
        ruled.connect("u")
    client.declare("a")
    client.declare("b")


def test_a_deleted_user_may_do_nothing_while_its_connections_end(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    client = ruled.user()
    client.publish("k", b"x", exchange="e")
    ruled.do(delete_user_step("u"))
    assert tried(ruled, client, publish("e")) is not None


def test_a_limit_of_none_closes_a_virtual_host(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(VHOST_LIMIT, MAX_CONNECTIONS, 0)
    with pytest.raises(AmqpError, match=r"connection limit \(0\) is reached"):
        ruled.connect("u")


def test_the_connections_and_channels_of_a_user_are_counted_in_all_virtual_hosts_together(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.do(set_rule_step(Rule(VHOST, "v", "v", "", Vhost())))
    ruled.do(set_rule_step(Rule(PERMISSION, "v", "u", "", Permission(".*", ".*", ".*"))))
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 2)
    ruled.limit(USER_LIMIT, MAX_CHANNELS, 2)
    here, there = ruled.connect("u"), ruled.connect("u", "v")
    with pytest.raises(AmqpError, match="user connection limit"):
        ruled.connect("u", "v")
    for connection in (here, there):
        ruled.client(connection)
    with pytest.raises(AmqpError, match="maximum allowed user limit"):
        ruled.client(there)


def test_nothing_is_kept_of_who_has_gone(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    clients = [ruled.user() for _ in range(3)]
    for client in clients:
        client.channel.session.close()  # type: ignore[attr-defined]
    ruled.root.channel.session.close()  # type: ignore[attr-defined]
    ruled.settle()
    book = ruled.broker.rights
    assert (book._of, book._counts, dict(book._connections)) == ({}, {}, {})


WAITING = ["delete a queue", "purge", "get", "consume", "bind a queue", "unbind a queue", "delete an exchange"]


@pytest.mark.parametrize("name", WAITING)
def test_allowed_when_it_came(name: str) -> None:
    """An operation waits for another one, or for the client's own publishes, and the permission goes meanwhile."""
    harness = _fresh({"configure": ".*", "write": ".*", "read": ".*"})
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
    harness = _fresh({"configure": ".*"})
    client = harness.user()
    harness.broker.locks.hold(("queue", "late"), ("exchange", "late"))
    operation(client)
    harness.allow()
    harness.broker.locks.release(("queue", "late"), ("exchange", "late"))
    harness.settle()
    assert [error.code for error in client.errors] == [403]
    assert "late" not in {*harness.broker.topology.queues, *harness.broker.topology.exchanges}


def test_a_queue_that_has_come_is_counted_once(ruled: Ruled) -> None:
    """Its declaration is applied, and is answered behind that of a deletion for which another declaration waits."""
    ruled.allow(".*", ".*", ".*")
    ruled.limit(VHOST_LIMIT, MAX_QUEUES, 2)
    first, second, third = ruled.user(), ruled.user(), ruled.user()
    ruled.broker.operations.deletions.delete(first.channel, "q", False, False, nothing)
    second.ask_declare("q2")
    third.ask_declare("q")
    ruled.settle()
    assert not third.errors and sorted(ruled.broker.topology.queues) == ["q", "q2"]
