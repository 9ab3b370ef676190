"""Definitions that are imported while clients are there: everything holds at once, in the broker as in the stream."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from tests.broker_plugin.embedded.harness import Harness
from txobserver.access import User, found_users_step, put_user_step
from txobserver.batch import load_step
from txobserver.configuration import BindingSpec, ExchangeSpec, binding_step, exchange_step, queue_step
from txobserver.events import Configure
from txobserver.rules import PERMISSION, POLICY, VHOST, Permission, Policy, Rule, Vhost, set_rule_step
from txobserver.vhosts import full_name

ALL = Permission(".*", ".*", ".*")


class Importing(Harness):
    """A broker whose cluster keeps users."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.rights.access = lambda: self.ledger.contents.access
        self.do(found_users_step([User("u", "h")], ""))

    def do(self, step: Configure) -> None:
        errors = self.ask(step)
        self.settle()
        assert errors == [None]

    def ask(self, step: Configure) -> list[str | None]:
        errors: list[str | None] = []
        self.ledger.configure(step, errors.append)
        return errors


@pytest.fixture
def importing() -> Importing:
    return Importing()


def test_what_is_imported_serves_clients_at_once(importing: Importing) -> None:
    e, q = full_name("v", "e"), full_name("v", "q")
    importing.do(
        load_step(
            [
                put_user_step("new", "h", ()),
                set_rule_step(Rule(VHOST, "v", "v", "", Vhost())),
                set_rule_step(Rule(PERMISSION, "v", "new", "", ALL)),
                set_rule_step(Rule(POLICY, "v", "p", "", Policy("^e$", 0, {"alternate-exchange": "amq.fanout"}))),
                exchange_step(ExchangeSpec(e, "direct", False, False, {})),
                queue_step(q, False, {}),
                binding_step(BindingSpec(e, q, True, "k", {})),
                binding_step(BindingSpec(full_name("v", "amq.fanout"), q, True, "", {})),
            ]
        )
    )
    client = importing.client(importing.connect("new", "v"))
    client.publish("k", b"by its binding", exchange="e")
    client.publish("none", b"by the policy", exchange="e")
    importing.settle()
    assert client.count(q) == 2
    importing.broker.operations.exchanges.declare_passive(full_name("v", "amq.topic"))


def test_what_is_refused_changes_nothing_for_clients(importing: Importing) -> None:
    client = importing.client(importing.connect("u", "/"))
    errors = importing.ask(
        load_step([queue_step("q", False, {}), binding_step(BindingSpec("absent", "q", True, "k", {}))])
    )
    importing.settle()
    assert errors == ["no source"]
    assert "q" not in importing.broker.topology.queues
    assert client.declare("q", True, auto_delete=True).name == "q"


@pytest.mark.parametrize("imported_first", [True, False])
def test_who_declares_another_queue_in_that_turn_is_told(imported_first: bool, importing: Importing) -> None:
    """The stream has both, and the first of them holds: a client must not be told that the second one does."""
    client = importing.client(importing.connect("u", "/"))
    wanted = load_step([queue_step("q", True, {})])
    if imported_first:
        errors = importing.ask(wanted)
        client.ask_declare("q")
    else:
        client.ask_declare("q")
        errors = importing.ask(wanted)
    importing.settle()
    if imported_first:
        assert errors == [None]
        assert [(error.code, "auto_delete" in error.text) for error in client.errors] == [(406, True)]
    else:
        assert errors == ["exists"] and not client.errors
    assert importing.broker.topology.queues["q"].auto_delete is imported_first


def test_an_exchange_that_is_not_durable_gives_way(importing: Importing) -> None:
    """It stayed, of another type, while the stream and every other node had the durable one."""
    client = importing.client(importing.connect("u", "/"))
    request = ExchangeDeclare("e", "fanout", False)
    importing.broker.operations.exchanges.declare(client.channel, request, lambda: None)
    importing.do(
        load_step(
            [
                exchange_step(ExchangeSpec("e", "direct", False, False, {})),
                queue_step("q", False, {}),
                binding_step(BindingSpec("e", "q", True, "k", {})),
            ]
        )
    )
    client.publish("other", b"nowhere", exchange="e")
    client.publish("k", b"there", exchange="e")
    importing.settle()
    exchange = importing.broker.topology.exchanges["e"]
    assert (client.count("q"), exchange.kind, exchange.durable) == (1, "direct", True)


def test_who_declares_another_exchange_in_that_turn_is_told(importing: Importing) -> None:
    client = importing.client(importing.connect("u", "/"))
    errors = importing.ask(load_step([exchange_step(ExchangeSpec("e", "topic", False, False, {}))]))
    answers: list[None] = []
    request = ExchangeDeclare("e", "direct", True)
    importing.broker.operations.exchanges.declare(client.channel, request, lambda: answers.append(None))
    importing.settle()
    assert errors == [None] and not answers
    assert [type(error) for error in client.errors] == [AmqpError] and "'type'" in client.errors[0].text
