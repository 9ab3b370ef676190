"""Rules of users: what a step may hold, and what it comes to where it is applied."""

from __future__ import annotations

import json

import msgspec
import pytest

from txobserver.access import Access, User, add_user_step, delete_user_step, found_users_step, put_user_step
from txobserver.audited import Origin, audited_step
from txobserver.configuration import UnknownStep, check_step
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import (
    LARGEST_LIMIT,
    LONGEST_PATTERN,
    MAX_CHANNELS,
    MAX_CONNECTIONS,
    MAX_QUEUES,
    MOST_RULES,
    PERMISSION,
    TOPIC_PERMISSION,
    USER_LIMIT,
    VHOST_LIMIT,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    Value,
    clear_rule_step,
    set_rule_step,
)

SOME = Permission("a", "b", "c")


def permission(user: str = "u", vhost: str = "/", value: Value = SOME, scope: str = "") -> Rule:
    return Rule(PERMISSION, vhost, user, scope, value)


def applied(access: Access, step: Configure) -> Refusal | None:
    check_step(step)
    return access.apply(msgspec.structs.replace(step, config_id=access.last + 1))


def kept() -> Access:
    """A cluster with one user, who may do nothing yet."""
    access = Access()
    assert applied(access, found_users_step([], "")) is None
    assert applied(access, add_user_step("u", "hash")) is None
    return access


def test_the_users_that_a_cluster_begins_with_may_do_everything_and_later_ones_nothing() -> None:
    access = Access()
    applied(access, found_users_step([User("a", "h"), User("b", "h")], ""))
    applied(access, add_user_step("c", "h"))
    assert {rule.name: rule.value for rule in access.rules.values()} == dict.fromkeys(
        "ab", Permission(".*", ".*", ".*")
    )


def test_a_rule_takes_the_place_of_the_one_that_stands_there_and_of_no_other() -> None:
    access = kept()
    topic = Rule(TOPIC_PERMISSION, "/", "u", "amq.topic", TopicPermission("w", "r"))
    for rule in (permission(), topic, msgspec.structs.replace(topic, scope="other")):
        assert applied(access, set_rule_step(rule)) is None
    assert applied(access, set_rule_step(permission(value=Permission("", "", "x")))) is None
    assert len(access.rules) == 3
    assert access.rules[permission().place].value == Permission("", "", "x")
    assert access.rules[topic.place] == topic


def test_a_rule_needs_its_user_and_its_virtual_host_where_it_is_applied() -> None:
    access = kept()
    assert applied(access, set_rule_step(permission("absent"))) is Refusal.GONE
    assert applied(access, set_rule_step(permission(vhost="elsewhere"))) is Refusal.NO_VHOST
    assert applied(access, set_rule_step(Rule(USER_LIMIT, "", "absent", MAX_CHANNELS, Limit(1)))) is Refusal.GONE
    assert access.rules == {}
    assert applied(access, set_rule_step(Rule(VHOST_LIMIT, "/", "/", MAX_QUEUES, Limit(1)))) is None


def test_a_user_takes_its_rules_along_and_a_password_leaves_them() -> None:
    access = kept()
    applied(access, add_user_step("v", "hash"))
    for rule in (permission(), permission("v"), Rule(USER_LIMIT, "", "u", MAX_CONNECTIONS, Limit(1))):
        applied(access, set_rule_step(rule))
    applied(access, set_rule_step(Rule(VHOST_LIMIT, "/", "/", MAX_QUEUES, Limit(1))))
    applied(access, put_user_step("u", "another", ()))
    assert len(access.rules) == 4
    applied(access, delete_user_step("u"))
    assert sorted((rule.kind, rule.name) for rule in access.rules.values()) == [(PERMISSION, "v"), (VHOST_LIMIT, "/")]
    applied(access, add_user_step("u", "hash"))
    assert permission().place not in access.rules


def test_what_is_not_there_is_not_cleared() -> None:
    access = kept()
    assert applied(access, clear_rule_step(PERMISSION, "/", "u")) is Refusal.GONE
    applied(access, set_rule_step(permission()))
    before = access.rules
    assert applied(access, clear_rule_step(TOPIC_PERMISSION, "/", "u", "amq.topic")) is Refusal.GONE
    assert applied(access, clear_rule_step(PERMISSION, "/", "u")) is None
    assert access.rules == {} and len(before) == 1, "copies share what is held"


def test_a_cluster_keeps_so_many_rules_and_one_that_is_there_can_still_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    access = kept()
    access.rules = {str(number): permission() for number in range(MOST_RULES - 1)}
    assert applied(access, set_rule_step(permission())) is None
    assert applied(access, set_rule_step(Rule(USER_LIMIT, "", "u", MAX_CHANNELS, Limit(1)))) is Refusal.TOO_MANY
    assert applied(access, set_rule_step(permission(value=Permission("", "", "")))) is None


def test_the_digest_covers_rules() -> None:
    access = kept()
    before = access.digest()
    applied(access, set_rule_step(permission()))
    other = access.copy()
    other.rules = {}
    assert len({before, access.digest(), other.digest()}) == 3


def test_the_history_shows_what_a_rule_was_and_is() -> None:
    access = kept()
    operator = Origin("root", "::1", "a", 1)
    first, then = permission(), permission(value=Permission("", "", "x"))
    for step in (set_rule_step(first), set_rule_step(then), clear_rule_step(PERMISSION, "/", "u")):
        applied(access, audited_step(step, operator, 10))
    applied(access, audited_step(set_rule_step(permission("gone")), operator, 10))
    shown = {"vhost": "/", "configure": "a", "write": "b", "read": "c"}
    later = {**shown, "configure": "", "write": "", "read": "x"}
    said = [
        (each.operation, each.before and json.loads(each.before), each.after and json.loads(each.after))
        for each in access.changes
    ]
    assert said == [
        ("permission.set", "", shown),
        ("permission.set", shown, later),
        ("permission.clear", later, ""),
        ("permission.set", "", ""),
    ]
    assert [each.refusal for each in access.changes] == ["", "", "", "gone"]


@pytest.mark.parametrize(
    "rule",
    [
        permission(""),
        permission(vhost=""),
        permission("a\0b"),
        permission("u" * 256),
        permission("é" * 128),
        permission(vhost="v" * 256),
        permission(scope="x"),
        permission(value=Limit(1)),
        permission(value=TopicPermission("", "")),
        permission(value=Permission("", "x" * (LONGEST_PATTERN + 1), "")),
        Rule(TOPIC_PERMISSION, "/", "u", "x" * 256, TopicPermission("", "")),
        Rule(USER_LIMIT, "/", "u", MAX_CHANNELS, Limit(1)),
        Rule(USER_LIMIT, "", "u", MAX_QUEUES, Limit(1)),
        Rule(USER_LIMIT, "", "u", MAX_CHANNELS, Limit(-2)),
        Rule(USER_LIMIT, "", "u", MAX_CHANNELS, Limit(LARGEST_LIMIT + 1)),
        Rule(VHOST_LIMIT, "/", "u", MAX_QUEUES, Limit(1)),
        Rule(VHOST_LIMIT, "/", "/", MAX_CHANNELS, Limit(1)),
    ],
)
def test_a_rule_that_cannot_be_is_refused_before_it_is_kept(rule: Rule) -> None:
    with pytest.raises(UnknownStep):
        check_step(set_rule_step(rule))
    with pytest.raises(UnknownStep):
        check_step(audited_step(set_rule_step(rule), Origin("", "", "", 1), 10))


@pytest.mark.parametrize("arguments", [b"", b"\xc0", msgspec.msgpack.encode(("/",)), msgspec.msgpack.encode((1, ""))])
def test_arguments_that_are_none_are_refused(arguments: bytes) -> None:
    for operation in ("permission.set", "permission.clear"):
        with pytest.raises(UnknownStep):
            check_step(Configure(1, operation, "u", arguments))
