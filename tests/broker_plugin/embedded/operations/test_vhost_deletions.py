"""A virtual host that is deleted goes whole, wherever its primary fails, and takes nothing else along."""

from __future__ import annotations

from typing import Any

import pytest

from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.queues.turn import STEPS
from tests.broker_plugin.embedded.harness import Client, Harness
from txobserver.access import User, found_users_step
from txobserver.configuration import queue_step
from txobserver.events import Configure
from txobserver.rules import PERMISSION, VHOST, Permission, Rule, Vhost, clear_rule_step, set_rule_step
from txobserver.vhosts import full_name, vhost_of


class Hosts(Harness):
    """With the virtual hosts ``v`` and ``w``, and the same in both."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.rights.access = lambda: self.ledger.contents.access
        self.do(found_users_step([User("u", "h")], ""))
        for vhost in ("v", "w"):
            self.do(set_rule_step(Rule(VHOST, vhost, vhost, "", Vhost())))
            self.do(set_rule_step(Rule(PERMISSION, vhost, "u", "", Permission(".*", ".*", ".*"))))
            self.fill(vhost, self.user(vhost))

    def do(self, step: Configure) -> None:
        errors: list[str | None] = []
        self.ledger.configure(step, errors.append)
        self.settle()
        assert errors == [None]

    def user(self, vhost: str) -> Client:
        return self.client(self.connect("u", vhost))

    def fill(self, vhost: str, client: Client) -> None:
        operations = self.broker.operations
        for number in range(3):
            client.declare(full_name(vhost, f"q{number}"))
        for name, durable in (("e", True), ("passing", False)):
            request = ExchangeDeclare(full_name(vhost, name), "direct", durable)
            operations.exchanges.declare(client.channel, request, lambda: None)
        ends = full_name(vhost, "amq.topic"), full_name(vhost, "amq.fanout")
        operations.bindings.bind(client.channel, BindRequest(*ends, False, "k"), lambda: None)
        client.declare(full_name(vhost, "local"), False)
        client.declare(full_name(vhost, "mine"), False, exclusive=True)
        client.publish("q0", b"x")
        self.settle()

    def left(self, vhost: str) -> list[str]:
        configuration, topology = self.ledger.contents.configuration, self.broker.topology
        of_bindings = [binding.source for binding in configuration.bindings]
        tables: tuple[Any, ...] = (configuration.queues, configuration.exchanges, of_bindings, topology.queues)
        return [name for names in (*tables, topology.exchanges) for name in names if vhost_of(name) == vhost]


@pytest.mark.parametrize("steps", range(24))
def test_the_next_primary_goes_on_with_a_deletion(steps: int) -> None:
    """Wherever the first one has failed, also where the deletion itself was lost with it."""
    hosts = Hosts()
    stays = hosts.left("w")
    hosts.ledger.configure(clear_rule_step(VHOST, "v", "v"), lambda error: None)
    hosts.progress(steps)
    hosts.take_over()
    going = hosts.broker.rights.vhosts_going() == ["v"]
    hosts.settle()
    if going:
        assert hosts.left("v") == [] and hosts.broker.rights.vhosts() == ["w"]
    else:
        assert hosts.broker.rights.vhosts() in (["v", "w"], ["w"])
        assert bool(hosts.left("v")) == ("v" in hosts.broker.rights.vhosts())
    durable = [name for name in stays if "local" not in name and "mine" not in name and "passing" not in name]
    assert hosts.left("w") == durable


def test_a_queue_that_is_declared_while_connections_end_goes_too() -> None:
    hosts = Hosts()
    late = hosts.user("v")
    hosts.ledger.configure(clear_rule_step(VHOST, "v", "v"), lambda error: None)
    late.ask_declare(full_name("v", "late"))
    hosts.settle()
    assert "v" in hosts.broker.rights.vhosts(), "its connections are there yet"
    for session in [each for each in hosts.broker._sessions if each.vhost == "v"]:
        assert [error.text for error in session.outlet.forced] == ["vhost 'v' is deleted"]  # type: ignore[attr-defined]
        session.close()
    hosts.settle()
    assert hosts.left("v") == [] and hosts.broker.rights.vhosts() == ["w"]


def test_users_of_other_virtual_hosts_stay_connected() -> None:
    hosts = Hosts()
    hosts.do(clear_rule_step(VHOST, "v", "v"))
    others = [each for each in hosts.broker._sessions if each.vhost == "w"]
    assert others and not any(each.outlet.forced for each in others)  # type: ignore[attr-defined]


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_an_earlier_term_s_pieces(turns: int) -> None:
    """Of a deletion in many turns some are left in the turn when the node steps down, and is primary again."""
    hosts = Hosts()
    client = hosts.user("v")
    for number in range(2500):
        client.ask_declare(full_name("v", f"n{number}"))
    hosts.settle()
    end_connections(hosts, "v")
    hosts.ledger.configure(clear_rule_step(VHOST, "v", "v"), lambda error: None)
    hosts.ledger.commit()
    for _ in range(turns):
        hosts.turn()
    hosts.take_over()
    hosts.settle()
    assert hosts.broker.rights.vhosts() == ["w"] and not hosts.broker.operations.vhosts._term
    hosts.do(set_rule_step(Rule(VHOST, "v", "v", "", Vhost())))
    hosts.do(clear_rule_step(VHOST, "v", "v"))
    assert hosts.broker.rights.vhosts() == ["w"]


def end_connections(hosts: Hosts, vhost: str) -> None:
    for session in [each for each in hosts.broker._sessions if each.vhost == vhost]:
        session.close()
    hosts.settle()


def test_deleted_while_a_new_primary_takes_over() -> None:
    """It is not said to be gone while queues of it are not made yet."""
    hosts = Hosts()
    for number in range(3 * STEPS):
        hosts.ledger.configure(queue_step(full_name("v", f"more{number}"), False, {}), lambda error: None)
    hosts.settle()
    hosts.take_over()
    hosts.ledger.configure(clear_rule_step(VHOST, "v", "v"), lambda error: None)
    hosts.ledger.commit()
    while hosts.broker.loading:
        assert not hosts.ledger.busy, "nothing is asked of the stream yet"
        hosts.turn()
    hosts.settle()
    assert not hosts.left("v") and "v" not in hosts.broker.rights.vhosts()
