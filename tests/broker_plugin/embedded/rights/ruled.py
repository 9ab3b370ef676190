"""A broker whose cluster keeps users, one of whom may do what a test allows; and what clients can ask for there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from tests.broker_plugin.embedded.harness import Client, Harness
from txobserver.access import add_user_step, found_users_step
from txobserver.events import Configure
from txobserver.rules import (
    PERMISSION,
    TOPIC_PERMISSION,
    USER_LIMIT,
    Limit,
    Permission,
    Rule,
    TopicPermission,
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


def fresh(patterns: dict[str, str]) -> Ruled:
    harness = made()
    harness.allow(**patterns)
    return harness
