"""Queues that are not used go after the time that holds of them, and never before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_plugin.embedded.operations.queue_expiry import LONGEST_TICK
from tests.broker_plugin.embedded.harness import Client, Harness
from txobserver.access import User, found_users_step
from txobserver.events import Configure
from txobserver.policies import QUEUES, Policy
from txobserver.rules import (
    PERMISSION,
    Permission,
    Rule,
    set_rule_step,
)

SECOND = {"arguments": {"x-expires": 1000}}


class Expiring(Harness):
    """A broker whose cluster keeps users, and whose clock the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.broker.rights.access = lambda: self.ledger.contents.access
        self.do(found_users_step([User("u", "h")], ""))
        self.do(set_rule_step(Rule(PERMISSION, "/", "u", "", Permission(".*", ".*", ".*"))))
        self.pass_by(0, 0, 0)

    def do(self, step: Configure) -> None:
        errors: list[str | None] = []
        self.ledger.configure(step, errors.append)
        self.settle()
        assert errors == [None]

    def user(self) -> Client:
        return self.client(self.connect("u"))

    def pass_by(self, *seconds: float) -> None:
        """So much time goes by before each of these ticks. Three without any, and all uses of before are seen."""
        for each in seconds:
            self.now += each
            self.broker.tick(self.now)
            self.settle()

    @property
    def queues(self) -> list[str]:
        assert list(self.ledger.contents.configuration.queues) == [
            name for name, queue in self.broker.topology.queues.items() if queue.durable
        ]
        return list(self.broker.topology.queues)

    def policy(self, kind: str, expires: int, name: str = "p", pattern: str = "", priority: int = 0) -> None:
        self.do(set_rule_step(Rule(kind, "/", name, "", Policy(pattern, priority, {"expires": expires}, QUEUES))))


@pytest.fixture
def expiring() -> Expiring:
    return Expiring()


@pytest.mark.parametrize("more", [{}, {"durable": False}, {"durable": False, "exclusive": True}])
def test_a_queue_that_is_not_used_goes_after_its_time_and_one_without_stays(
    more: dict[str, bool], expiring: Expiring
) -> None:
    client = expiring.user()
    client.declare("q", **more, **SECOND)
    client.declare("stays", **more)
    client.publish("q", b"x")
    expiring.pass_by(0, 0, 0, 0.999)
    assert expiring.queues == ["q", "stays"]
    expiring.pass_by(0.001)
    assert expiring.queues == ["stays"] and not client.errors


def hold(client: Client) -> None:
    client.publish("q", b"x")
    client.harness.settle()
    assert client.get("q") is not None


USES: dict[str, Callable[[Client], object]] = {
    "declared again": lambda client: client.declare("q", **SECOND),
    "looked at": lambda client: client.count("q"),
    "asked for a message": lambda client: client.get("q"),
    "consumed": lambda client: client.channel.consume("q", "t", True, False, {}),
}


@pytest.mark.parametrize("use", USES)
def test_a_queue_that_is_used_counts_from_the_beginning(use: str, expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q", **SECOND)
    expiring.pass_by(0, 0, 0, 0.5)
    USES[use](client)
    expiring.settle()
    client.channel.cancel("t")
    expiring.pass_by(0.5, 0, 0, 0.999)
    assert expiring.queues == ["q"]
    expiring.pass_by(0.001)
    assert expiring.queues == []


@pytest.mark.parametrize("end", ["given back", "settled", "the channel closes"])
def test_the_time_begins_when_what_was_held_is_let_go(end: str, expiring: Expiring) -> None:
    """``expires_sooner_than_it_says``: it began with the last look at which the message was held."""
    client, holder = expiring.user(), expiring.user()
    client.declare("q", **SECOND)
    hold(holder)
    expiring.pass_by(0, 0, 0, 0.9)
    if end == "given back":
        holder.channel.reject(1, False, True)
    elif end == "settled":
        holder.channel.ack(1, False)
    else:
        holder.channel.close()
    expiring.settle()
    expiring.pass_by(0.9, 0, 0.999)
    assert expiring.queues == ["q"]
    expiring.pass_by(1)
    assert expiring.queues == []


@pytest.mark.parametrize("held", [False, True])
def test_a_use_in_the_middle_of_a_pass_counts_from_then_on(held: bool, expiring: Expiring) -> None:
    """A pass takes many turns, and the clock stands at its begin."""
    client = expiring.user()
    client.declare("q", durable=False, **SECOND)
    if held:
        hold(client)
    expiring.pass_by(0, 0, 0)
    expiring.now += 0.1
    expiring.broker.tick(expiring.now)
    expiring.now += 0.8
    if held:
        client.channel.ack(1, False)
    else:
        client.count("q")
    expiring.settle()
    expiring.pass_by(0.999)
    assert expiring.queues == ["q"]
    expiring.pass_by(0.999)
    assert expiring.queues == ["q"]
    expiring.pass_by(0.001)
    assert expiring.queues == []


def test_a_queue_stays_while_it_has_consumers_or_its_messages_are_held(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q", **SECOND)
    client.channel.consume("q", "t", True, False, {})
    expiring.pass_by(*[1.0] * 5)
    hold_by = expiring.user()
    client.channel.cancel("t")
    hold(hold_by)
    expiring.pass_by(*[1.0] * 5)
    assert expiring.queues == ["q"]
    hold_by.channel.close()
    expiring.pass_by(0, 0, 0, 0.999)
    assert expiring.queues == ["q"]
    expiring.pass_by(1)
    assert expiring.queues == []


def test_a_queue_stays_that_is_used_while_its_deletion_waits(expiring: Expiring) -> None:
    """``in_use_when_its_turn_comes``: another operation holds its name when its time is up."""
    client = expiring.user()
    client.declare("q", **SECOND)
    expiring.pass_by(0, 0, 0)
    expiring.broker.locks.hold(("queue", "q"))
    expiring.pass_by(1, 1, 1)
    assert expiring.queues == ["q"]
    expiring.broker.topology.queues["q"].touched = True
    expiring.broker.locks.release(("queue", "q"))
    expiring.settle()
    assert expiring.queues == ["q"]
    expiring.pass_by(0, 0, 0, 1)
    assert expiring.queues == []


def test_a_deletion_that_does_not_pass_the_commit_point_is_asked_for_once(expiring: Expiring) -> None:
    """``expiry_while_too_few_are_ready``: each tick added one more that waits for the name."""
    client = expiring.user()
    client.declare("q", **SECOND)
    expiring.pass_by(0, 0, 0)
    for _ in range(10):
        expiring.now += 1
        expiring.broker.tick(expiring.now)
        expiring.turn()
    waiting = expiring.broker.locks._waiting[("queue", "q")]
    assert len(waiting) <= 1
    expiring.settle()
    assert expiring.queues == []


def test_time_in_which_the_node_stood_still_counts_little(expiring: Expiring) -> None:
    """``expiry_after_a_standstill``: clients could not use the queue meanwhile."""
    client = expiring.user()
    client.declare("q", arguments={"x-expires": int(LONGEST_TICK * 1000) + 1})
    expiring.pass_by(0, 0, 0, 3600)
    assert expiring.queues == ["q"]
    expiring.pass_by(1)
    assert expiring.queues == []


def test_a_new_primary_counts_from_the_beginning(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q", **SECOND)
    client.declare("waits", **SECOND)
    expiring.pass_by(0, 0, 0, 0.5)
    client.count("q")
    expiring.broker.locks.hold(("queue", "waits"))
    expiring.pass_by(0, 0, 0, 0.5)
    assert expiring.broker.operations.expiry._waiting
    expiring.broker.on_inactive("resigned")
    expiring.pass_by(0.5, 1)
    expiring.ledger.serve(expiring.broker)
    expiring.settle()
    assert not expiring.broker.operations.expiry._waiting
    expiring.pass_by(0, 0, 0, 0.999)
    assert expiring.queues == ["q", "waits"]
    expiring.pass_by(0.001)
    assert expiring.queues == []


def test_none_goes_before_the_branches_of_an_earlier_primary_have_locked_what_they_hold(expiring: Expiring) -> None:
    expiring.user().declare("q", **SECOND)
    expiring.pass_by(0, 0, 0)
    branches: Any = expiring.broker.branches
    branches._locking.append((None, expiring.broker.topology.queues["q"], []))
    expiring.pass_by(1, 1)
    assert expiring.queues == ["q"]
    branches._locking.clear()
    expiring.pass_by(1)
    assert expiring.queues == []


def test_none_goes_while_this_node_is_taking_over(expiring: Expiring) -> None:
    expiring.user().declare("q", arguments={"x-expires": 1})
    expiring.pass_by(0)
    expiring.broker.loading = True
    expiring.pass_by(1, 1, 1)
    assert expiring.queues == ["q"]
    expiring.broker.loading = False
    expiring.pass_by(0, 0, 0, 1)
    assert expiring.queues == []


@pytest.mark.parametrize("use", ["a basic.get waits", "messages come back in pieces"])
def test_a_queue_stays_while_something_is_under_way(use: str, expiring: Expiring) -> None:
    expiring.user().declare("q", **SECOND)
    queue = expiring.broker.topology.queues["q"]
    queue.hold()
    if use == "a basic.get waits":
        queue.get(lambda taken: None)
    else:
        queue.begin_return()
    expiring.pass_by(0, 0, 0, *[1.0] * 5)
    assert expiring.queues == ["q"]


def test_a_pass_that_outlasts_ticks_is_made_to_its_end(expiring: Expiring) -> None:
    """``passes_that_overlap``: each tick had begun another one, and what was seen was forgotten in the middle."""
    client = expiring.user()
    for number in range(30_000):
        client.ask_declare(f"q{number}", durable=False, **SECOND)
    expiring.settle()
    expiry = expiring.broker.operations.expiry
    most = 0
    for _ in range(60):
        expiring.now += 0.5
        expiring.broker.tick(expiring.now)
        most = max(most, len(expiry._names))
        expiring.turn()
    expiring.settle()
    assert most == 30_000 and expiring.queues == []


def test_many_queues_are_looked_at_in_several_turns(expiring: Expiring) -> None:
    client = expiring.user()
    for number in range(20_000):
        client.ask_declare(f"q{number}", durable=False, **SECOND)
    expiring.settle()
    before = expiring.broker.turn.longest
    expiring.pass_by(0, 0, 0, 1)
    assert expiring.queues == [] and expiring.broker.turn.longest <= max(before, 1100)
