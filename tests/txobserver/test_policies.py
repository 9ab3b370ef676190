"""Policies and operator policies: what one may say, and that they stand beside each other."""

from __future__ import annotations

import msgspec
import pytest

from tests.txobserver.test_rules import applied, kept, rules
from txobserver.access import delete_user_step
from txobserver.audited import Origin, audited_step
from txobserver.configuration import UnknownStep, check_step
from txobserver.policies import LARGEST_PRIORITY, LONGEST_DEFINITION, LONGEST_EXPIRY, LONGEST_PATTERN, Policy
from txobserver.refusal import Refusal
from txobserver.rules import OPERATOR_POLICY, POLICY, Rule, clear_rule_step, set_rule_step

POLICY_VALUE = Policy("^e", 0, {"alternate-exchange": "e"})
SAID = len(msgspec.msgpack.encode({"alternate-exchange": "e" * 256})) - 256
"""Bytes of a definition beside the name in it"""
OPERATORS_SAY = Policy("^q", 0, {"expires": 1}, "queues")


@pytest.mark.parametrize(
    "rule",
    [
        Rule(POLICY, "/", "p", "x", POLICY_VALUE),
        Rule(POLICY, "", "p", "", POLICY_VALUE),
        Rule(POLICY, "/", "p", "", Policy("x" * 1025, 0, {"alternate-exchange": "e"})),
        Rule(POLICY, "/", "p", "", Policy("", 2**31, {"alternate-exchange": "e"})),
        Rule(POLICY, "/", "p", "", Policy("", 0, {})),
        Rule(POLICY, "/", "p", "", Policy("", 0, {"alternate-exchange": "e", "message-ttl": "1"})),
        Rule(POLICY, "/", "p", "", Policy("", 0, {"alternate-exchange": "e" * 4096})),
        Rule(POLICY, "/", "p", "", Policy("", 0, {"alternate-exchange": "e"}, "queues")),
        Rule(POLICY, "/", "p", "", Policy("", 0, {"expires": 1})),
        Rule(POLICY, "/", "p", "", Policy("", 0, {"expires": 1}, "streams")),
        Rule(OPERATOR_POLICY, "/", "p", "x", OPERATORS_SAY),
        Rule(OPERATOR_POLICY, "", "p", "", OPERATORS_SAY),
        Rule(OPERATOR_POLICY, "/", "p", "", Policy("", 0, {"alternate-exchange": "e"}, "all")),
        Rule(OPERATOR_POLICY, "/", "p", "", Policy("", 0, {"expires": 0}, "queues")),
        Rule(OPERATOR_POLICY, "/", "p", "", Policy("", 0, {"expires": 2**32}, "queues")),
        Rule(OPERATOR_POLICY, "/", "p", "", Policy("", 0, {"expires": "1"}, "queues")),
        Rule(OPERATOR_POLICY, "/", "p", "", Policy("", 0, {"expires": 1}, "exchanges")),
    ],
)
def test_a_policy_that_cannot_be_is_refused_before_it_is_kept(rule: Rule) -> None:
    with pytest.raises(UnknownStep):
        check_step(set_rule_step(rule))


def test_a_policy_is_of_a_virtual_host_and_of_no_user() -> None:
    access = kept()
    policy = Rule(POLICY, "/", "u", "", POLICY_VALUE)
    assert applied(access, set_rule_step(policy)) is None
    assert applied(access, set_rule_step(msgspec.structs.replace(policy, vhost="v"))) is Refusal.NO_VHOST
    applied(access, audited_step(set_rule_step(policy), Origin("root", "::1", "a", 1), 10))
    shown = (
        '{"vhost":"/","pattern":"^e","priority":0,"definition":{"alternate-exchange":"e"},'
        '"apply_to":"exchanges"}'
    )
    assert access.changes[-1].after == shown
    applied(access, delete_user_step("u"))
    assert rules(access) == [policy]
    beside = Rule(OPERATOR_POLICY, "/", "u", "", OPERATORS_SAY)
    assert applied(access, set_rule_step(beside)) is None
    assert applied(access, clear_rule_step(POLICY, "/", "u")) is None
    assert rules(access) == [beside]
    assert applied(access, clear_rule_step(OPERATOR_POLICY, "/", "u")) is None


def test_a_policy_of_before_is_of_exchanges() -> None:
    """As it was written before policies said what they are of."""
    encoded = msgspec.msgpack.encode([5, "^e", 0, {"alternate-exchange": "e"}])
    assert msgspec.msgpack.decode(encoded, type=Policy) == POLICY_VALUE


def test_the_largest_that_can_be_said_is_taken() -> None:
    for policy in (
        Policy("x" * LONGEST_PATTERN, LARGEST_PRIORITY, {"expires": LONGEST_EXPIRY}, "all"),
        Policy("", -LARGEST_PRIORITY, {"alternate-exchange": "e" * (LONGEST_DEFINITION - SAID)}),
    ):
        check_step(set_rule_step(Rule(POLICY, "/", "p", "", policy)))
    too_long = Policy("", 0, {"alternate-exchange": "e" * (LONGEST_DEFINITION - SAID + 1)})
    with pytest.raises(UnknownStep, match="says at most 4096 bytes"):
        check_step(set_rule_step(Rule(POLICY, "/", "p", "", too_long)))
