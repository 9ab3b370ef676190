"""What policies and operator policies say of how long queues may not be used, and when a change of one holds."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.rights.patterns import REMEMBERED
from tests.broker_plugin.embedded.operations.test_queue_expiry import Expiring
from txobserver.policies import QUEUES, Policy
from txobserver.rules import (
    MOST_RULES,
    OPERATOR_POLICY,
    PERMISSION,
    POLICY,
    VHOST,
    Permission,
    Rule,
    Vhost,
    clear_rule_step,
    set_rule_step,
)
from txobserver.vhosts import full_name


@pytest.fixture
def expiring() -> Expiring:
    return Expiring()


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
    expiring.pass_by(0, 0, 0, 1)
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
    expiring.pass_by(0, 0, 0, 1)
    assert expiring.queues == []
    client.declare("q")
    expiring.policy(OPERATOR_POLICY, 60_000)
    expiring.policy(POLICY, 1000)
    expiring.pass_by(0, 0, 0, 1)
    assert expiring.queues == []
    expiring.do(clear_rule_step(POLICY, "/", "p"))
    expiring.policy(OPERATOR_POLICY, 1000)
    client.declare("q")
    expiring.pass_by(0, 0, 0, 1)
    assert expiring.queues == []


def test_a_change_of_a_policy_holds_at_once_and_lets_the_time_begin_anew(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q")
    expiring.pass_by(0, 0, 0, 1, 1)
    expiring.policy(OPERATOR_POLICY, 1000)
    expiring.pass_by(0, 0, 0, 0.999)
    expiring.policy(OPERATOR_POLICY, 2000)
    expiring.pass_by(0.001, 0, 1.999)
    assert expiring.queues == ["q"]
    expiring.do(clear_rule_step(OPERATOR_POLICY, "/", "p"))
    expiring.pass_by(1, 1, 1)
    assert expiring.queues == ["q"]
    expiring.policy(OPERATOR_POLICY, 1000)
    expiring.pass_by(0, 0, 0, 0.5)
    expiring.policy(POLICY, 60_000)  # another one, after which the same time holds
    expiring.pass_by(0.5)
    assert expiring.queues == []


def test_a_shorter_time_begins_anew_as_well(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q")
    expiring.policy(POLICY, 60_000)
    expiring.pass_by(0, 0, 0, 2, 2, 2)
    expiring.policy(POLICY, 1000)
    expiring.pass_by(0, 0, 0, 0.999)
    assert expiring.queues == ["q"]
    expiring.pass_by(0.001)
    assert expiring.queues == []


def test_a_policy_that_is_set_again_finds_nothing_of_its_former_time(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q")
    client.declare("long", arguments={"x-expires": 600_000})
    expiring.policy(POLICY, 2000, "p", "^q$")
    expiring.pass_by(0, 0, 0, 1.5)
    expiring.do(clear_rule_step(POLICY, "/", "p"))
    expiring.pass_by(1, 1)
    expiring.policy(POLICY, 2000, "p", "^q$")
    expiring.pass_by(0, 0, 0, 1.999)
    assert expiring.queues == ["q", "long"]
    expiring.pass_by(0.001)
    assert expiring.queues == ["long"]


def test_a_policy_counts_in_its_own_virtual_host(expiring: Expiring) -> None:
    """Of both kinds: one of another virtual host lets no queue go."""
    expiring.do(set_rule_step(Rule(VHOST, "v", "v", "", Vhost())))
    expiring.do(set_rule_step(Rule(PERMISSION, "v", "u", "", Permission(".*", ".*", ".*"))))
    policies, there = expiring.broker.policies, full_name("v", "q")
    client, other = expiring.user(), expiring.client(expiring.connect("u", "v"))
    for kind in (POLICY, OPERATOR_POLICY):
        client.declare("q")
        other.declare(there)
        expiring.do(set_rule_step(Rule(kind, "v", "p", "", Policy("", 0, {"expires": 1000}, QUEUES))))
        assert (policies.expiry_of("q"), policies.expiry_of(there)) == (None, 1000)
        expiring.pass_by(0, 0, 0, 1)
        assert expiring.queues == ["q"]
        expiring.do(clear_rule_step(kind, "v", "p"))
        other.declare(there)
        expiring.do(set_rule_step(Rule(kind, "/", "p", "", Policy("", 0, {"expires": 1000}, QUEUES))))
        expiring.pass_by(0, 0, 0, 1)
        assert expiring.queues == [there]
        expiring.do(clear_rule_step(kind, "/", "p"))


def test_a_policy_of_exchanges_says_nothing_of_queues(expiring: Expiring) -> None:
    client = expiring.user()
    client.declare("q")
    expiring.policy(POLICY, 1000)
    expiring.do(
        set_rule_step(Rule(POLICY, "/", "higher", "", Policy("", 9, {"alternate-exchange": "e"}, "exchanges")))
    )
    expiring.pass_by(0, 0, 0, 1)
    assert expiring.queues == []


def test_a_policy_of_queues_leaves_exchanges_to_others(expiring: Expiring) -> None:
    expiring.do(set_rule_step(Rule(POLICY, "/", "low", "", Policy("", 0, {"alternate-exchange": "amq.fanout"}, "all"))))
    expiring.policy(POLICY, 1000, "queues", "", 9)
    assert expiring.broker.policies.alternate_of("amq.direct") == "amq.fanout"
    expiring.do(set_rule_step(Rule(POLICY, "/", "all", "", Policy("", 10, {"expires": 7}, "all"))))
    assert expiring.broker.policies.alternate_of("amq.direct") is None
    assert expiring.broker.policies.expiry_of("q") == 7


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
    expiring.pass_by(0, 0, 0)
    assert 100 * 900 < policies.compared <= 100 * 1000 and turn.longest <= 1200
    assert REMEMBERED >= MOST_RULES, "patterns that were forgotten would be compiled again for each name"
    compared = policies.compared
    expiring.pass_by(0.5)
    assert policies.compared == compared
    expiring.pass_by(0.5)
    assert expiring.queues == []
