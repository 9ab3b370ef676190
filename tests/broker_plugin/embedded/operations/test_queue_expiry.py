"""Queues that are not used go after the time that holds of them, and never before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_plugin.embedded.operations.queue_expiry import LONGEST_TICK
from broker_plugin.embedded.rights.patterns import REMEMBERED
from tests.broker_plugin.embedded.harness import Client, Harness
from txobserver.access import User, found_users_step
from txobserver.events import Configure
from txobserver.policies import QUEUES, Policy
from txobserver.rules import (
    MOST_RULES,
    OPERATOR_POLICY,
    PERMISSION,
    POLICY,
    Permission,
    Rule,
    clear_rule_step,
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
        self.pass_by(0)

    def do(self, step: Configure) -> None:
        errors: list[str | None] = []
        self.ledger.configure(step, errors.append)
        self.settle()
        assert errors == [None]

    def user(self) -> Client:
        return self.client(self.connect("u"))

    def pass_by(self, *seconds: float) -> None:
        """So much time goes by before each of these ticks."""
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
    expiring.pass_by(0, 0.999)
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
    expiring.pass_by(0, 0.5)
    USES[use](client)
    expiring.settle()
    client.channel.cancel("t")
    expiring.pass_by(0.5, 0.999)
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
    expiring.pass_by(0, 0.999)
    assert expiring.queues == ["q"]
    expiring.pass_by(1)
    assert expiring.queues == []


def test_a_queue_stays_that_is_used_while_its_deletion_waits(expiring: Expiring) -> None:
    """``in_use_when_its_turn_comes``: another operation holds its name when its time is up."""
    client = expiring.user()
    client.declare("q", **SECOND)
    expiring.pass_by(0)
    expiring.broker.locks.hold(("queue", "q"))
    expiring.pass_by(1, 1, 1)
    assert expiring.queues == ["q"]
    expiring.broker.topology.queues["q"].touched = True
    expiring.broker.locks.release(("queue", "q"))
    expiring.settle()
    assert expiring.queues == ["q"]
    expiring.pass_by(1, 1)
    assert expiring.queues == []


def test_a_deletion_that_does_not_pass_the_commit_point_is_asked_for_once(expiring: Expiring) -> None:
    """``expiry_while_too_few_are_ready``: each tick added one more that waits for the name."""
    client = expiring.user()
    client.declare("q", **SECOND)
    expiring.pass_by(0)
    for _ in range(10):
        expiring.now += 1
        expiring.broker.tick(expiring.now)
        expiring.turn()
    waiting = expiring.broker.locks._waiting[("queue", "q")]
    assert len(waiting) <= 1
    expiring.settle()
    assert expiring.queues == []


def test_the_smallest_of_what_is_said_holds(expiring: Expiring) -> None:
    """Of the declaration, the policy and the operator policy; of policies the one with the highest priority."""
    client = expiring.user()
    for name, expires in (("own", 1000), ("long", 60_000), ("none", 0)):
        client.declare(name, arguments={"x-expires": expires} if expires else {})
    expiring.policy(POLICY, 3000, "p", "^(own|long)$", 1)
    expiring.policy(POLICY, 10, "lower", "", 0)
    expiring.do(clear_rule_step(POLICY, "/", "lower"))
    expiring.policy(POLICY, 500, "lower", "^own", -1)
    expiring.policy(OPERATOR_POLICY, 5000)
    expiring.pass_by(0, 1)
    assert expiring.queues == ["long", "none"]
    expiring.pass_by(1, 0.999)
    assert expiring.queues == ["long", "none"]
    expiring.pass_by(0.001)
    assert expiring.queues == ["none"]
    expiring.pass_by(1.999)
    assert expiring.queues == ["none"]
    expiring.pass_by(0.002)
    assert expiring.queues == []


def test_an_operator_policy_bounds_a_policy_and_each_counts_where_the_other_is_not(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q")
    expiring.policy(POLICY, 60_000)
    expiring.policy(OPERATOR_POLICY, 1000)
    expiring.pass_by(0, 1)
    assert expiring.queues == []
    client.declare("q")
    expiring.policy(OPERATOR_POLICY, 60_000)
    expiring.policy(POLICY, 1000)
    expiring.pass_by(0, 1)
    assert expiring.queues == []
    expiring.do(clear_rule_step(POLICY, "/", "p"))
    expiring.policy(OPERATOR_POLICY, 1000)
    client.declare("q")
    expiring.pass_by(0, 1)
    assert expiring.queues == []


def test_a_change_of_a_policy_holds_at_once_and_lets_the_time_begin_anew(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q")
    expiring.pass_by(0, 1, 1)
    expiring.policy(OPERATOR_POLICY, 1000)
    expiring.pass_by(0, 0.999)
    expiring.policy(OPERATOR_POLICY, 2000)
    expiring.pass_by(0.001, 1.999)
    assert expiring.queues == ["q"]
    expiring.do(clear_rule_step(OPERATOR_POLICY, "/", "p"))
    expiring.pass_by(1, 1, 1)
    assert expiring.queues == ["q"]
    expiring.policy(OPERATOR_POLICY, 1000)
    expiring.pass_by(0, 0.5)
    expiring.policy(POLICY, 60_000)  # another one, after which the same time holds
    expiring.pass_by(0.5)
    assert expiring.queues == []


def test_a_policy_of_exchanges_says_nothing_of_queues(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q")
    expiring.policy(POLICY, 1000)
    expiring.do(
        set_rule_step(Rule(POLICY, "/", "higher", "", Policy("", 9, {"alternate-exchange": "e"}, "exchanges")))
    )
    expiring.pass_by(0, 1)
    assert expiring.queues == []


def test_a_policy_of_queues_leaves_exchanges_to_others(expiring: Expiring) -> None:
    expiring.do(set_rule_step(Rule(POLICY, "/", "low", "", Policy("", 0, {"alternate-exchange": "amq.fanout"}, "all"))))
    expiring.policy(POLICY, 1000, "queues", "", 9)
    assert expiring.broker.policies.alternate_of("amq.direct") == "amq.fanout"
    expiring.do(set_rule_step(Rule(POLICY, "/", "all", "", Policy("", 10, {"expires": 7}, "all"))))
    assert expiring.broker.policies.alternate_of("amq.direct") is None
    assert expiring.broker.policies.expiry_of("q") == 7


def test_time_in_which_the_node_stood_still_counts_little(expiring: Expiring) -> None:
    """``expiry_after_a_standstill``: clients could not use the queue meanwhile."""
    client = expiring.user()
    client.declare("q", arguments={"x-expires": int(LONGEST_TICK * 1000) + 1})
    expiring.pass_by(0, 3600)
    assert expiring.queues == ["q"]
    expiring.pass_by(1)
    assert expiring.queues == []


def test_a_new_primary_counts_from_the_beginning(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q", **SECOND)
    client.declare("waits", **SECOND)
    expiring.pass_by(0, 0.5)
    client.count("q")
    expiring.broker.locks.hold(("queue", "waits"))
    expiring.pass_by(0, 0.5)
    assert expiring.broker.operations.expiry._waiting
    expiring.broker.on_inactive("resigned")
    expiring.pass_by(0.5, 1)
    expiring.ledger.serve(expiring.broker)
    expiring.settle()
    assert not expiring.broker.operations.expiry._waiting
    expiring.pass_by(0, 0.999)
    assert expiring.queues == ["q", "waits"]
    expiring.pass_by(0.001)
    assert expiring.queues == []


def test_none_goes_before_the_branches_of_an_earlier_primary_have_locked_what_they_hold(expiring: Expiring) -> None:
    expiring.user().declare("q", **SECOND)
    expiring.pass_by(0)
    branches: Any = expiring.broker.branches
    branches._locking.append((None, expiring.broker.topology.queues["q"], []))
    expiring.pass_by(1, 1)
    assert expiring.queues == ["q"]
    branches._locking.clear()
    expiring.pass_by(1)
    assert expiring.queues == []


def test_many_queues_are_looked_at_in_several_turns(expiring: Expiring) -> None:
    client = expiring.user()
    for number in range(20_000):
        client.ask_declare(f"q{number}", durable=False, **SECOND)
    expiring.settle()
    before = expiring.broker.turn.longest
    expiring.pass_by(0, 1)
    assert expiring.queues == [] and expiring.broker.turn.longest <= max(before, 1100)


def test_many_policies_are_looked_at_in_several_turns_and_once(expiring: Expiring) -> None:
    """``policies_as_long_as_a_lease``: all of them were compared with all names in one turn, in each tick."""
    client = expiring.user()
    for number in range(100):
        client.declare(f"q{number}")
    for number in range(1000):
        rule = Rule(POLICY, "/", f"p{number}", "", Policy(f"^q{number}$", number, {"expires": 1000}, QUEUES))
        expiring.ledger.configure(set_rule_step(rule), lambda error: None)
    expiring.settle()
    turn, policies = expiring.broker.turn, expiring.broker.policies
    turn.longest = 0
    expiring.pass_by(0)
    assert 100 * 900 < policies.compared <= 100 * 1000 and turn.longest <= 1200
    assert REMEMBERED >= MOST_RULES, "patterns that were forgotten would be compiled again for each name"
    compared = policies.compared
    expiring.pass_by(0.5)
    assert policies.compared == compared
    expiring.pass_by(0.5)
    assert expiring.queues == []
