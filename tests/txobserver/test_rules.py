"""Rules of users: what a step may hold, and what it comes to where it is applied."""

from __future__ import annotations

import json

import msgspec
import pytest

from txobserver.access import Access, User, add_user_step, delete_user_step, found_users_step, put_user_step
from txobserver.audited import LONGEST_ORIGIN, LONGEST_SHOWN, Origin, audited_step, plain_step
from txobserver.configuration import (
    BindingSpec,
    Configured,
    ExchangeSpec,
    UnknownStep,
    binding_step,
    check_step,
    delete_exchange_step,
    delete_queue_step,
    exchange_step,
    queue_step,
)
from txobserver.events import Configure
from txobserver.ids import Position
from txobserver.policies import LONGEST_PATTERN, Policy
from txobserver.ports.store import MemoryBase, Meta
from txobserver.refusal import Refusal
from txobserver.rule_table import vhosts_going
from txobserver.rules import (
    LARGEST_LIMIT,
    MAX_CHANNELS,
    MAX_CONNECTIONS,
    MAX_QUEUES,
    MOST_RULES,
    PERMISSION,
    POLICY,
    TOPIC_PERMISSION,
    USER_LIMIT,
    VHOST,
    VHOST_LIMIT,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    Value,
    Vhost,
    clear_rule_step,
    place,
    set_rule_step,
    vhost_gone_step,
)
from txobserver.state.contents import Contents
from txobserver.vhosts import beside, full_name, local_name, parts_of, vhost_of

SOME = Permission("a", "b", "c")
POLICY_VALUE = Policy("^e", 0, {"alternate-exchange": "e"})
DEFAULT = place(VHOST, "/", "/", "")


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
    assert list(access.rules) == [DEFAULT]
    return access


def rules(access: Access) -> list[Rule]:
    """All but the default virtual host."""
    return [rule for place, rule in access.rules.items() if place != DEFAULT]


def test_the_users_that_a_cluster_begins_with_may_do_everything_and_later_ones_nothing() -> None:
    access = Access()
    applied(access, found_users_step([User("a", "h"), User("b", "h")], ""))
    applied(access, add_user_step("c", "h"))
    assert {rule.name: rule.value for rule in rules(access)} == dict.fromkeys(
        "ab", Permission(".*", ".*", ".*")
    )


def test_a_rule_takes_the_place_of_the_one_that_stands_there_and_of_no_other() -> None:
    access = kept()
    topic = Rule(TOPIC_PERMISSION, "/", "u", "amq.topic", TopicPermission("w", "r"))
    for rule in (permission(), topic, msgspec.structs.replace(topic, scope="other")):
        assert applied(access, set_rule_step(rule)) is None
    assert applied(access, set_rule_step(permission(value=Permission("", "", "x")))) is None
    assert len(rules(access)) == 3
    assert access.rules[permission().place].value == Permission("", "", "x")
    assert access.rules[topic.place] == topic


def test_a_rule_needs_its_user_and_its_virtual_host_where_it_is_applied() -> None:
    access = kept()
    assert applied(access, set_rule_step(permission("absent"))) is Refusal.GONE
    assert applied(access, set_rule_step(permission(vhost="elsewhere"))) is Refusal.NO_VHOST
    assert applied(access, set_rule_step(Rule(USER_LIMIT, "", "absent", MAX_CHANNELS, Limit(1)))) is Refusal.GONE
    assert rules(access) == []
    assert applied(access, set_rule_step(Rule(VHOST_LIMIT, "/", "/", MAX_QUEUES, Limit(1)))) is None


def test_a_user_takes_its_rules_along_and_a_password_leaves_them() -> None:
    access = kept()
    applied(access, add_user_step("v", "hash"))
    for rule in (permission(), permission("v"), Rule(USER_LIMIT, "", "u", MAX_CONNECTIONS, Limit(1))):
        applied(access, set_rule_step(rule))
    applied(access, set_rule_step(Rule(VHOST_LIMIT, "/", "/", MAX_QUEUES, Limit(1))))
    applied(access, put_user_step("u", "another", ()))
    assert len(rules(access)) == 4
    applied(access, delete_user_step("u"))
    assert sorted((rule.kind, rule.name) for rule in rules(access)) == [(PERMISSION, "v"), (VHOST_LIMIT, "/")]
    applied(access, add_user_step("u", "hash"))
    assert permission().place not in access.rules


def test_what_is_not_there_is_not_cleared() -> None:
    access = kept()
    assert applied(access, clear_rule_step(PERMISSION, "/", "u")) is Refusal.GONE
    applied(access, set_rule_step(permission()))
    before = access.rules
    assert applied(access, clear_rule_step(TOPIC_PERMISSION, "/", "u", "amq.topic")) is Refusal.GONE
    assert applied(access, clear_rule_step(PERMISSION, "/", "u")) is None
    assert rules(access) == [] and len(before) == 2, "copies share what is held"


def test_a_cluster_keeps_so_many_rules_and_one_that_is_there_can_still_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    access = kept()
    access.rules |= {str(number): permission() for number in range(MOST_RULES - 2)}
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
        Rule(VHOST, "v", "w", "", Vhost()),
        Rule(VHOST, "v", "v", "x", Vhost()),
        Rule(VHOST, "v\0w", "v\0w", "", Vhost()),
        Rule(VHOST, "v", "v", "", Vhost(going=True)),
        Rule(VHOST, "v", "v", "", Vhost("x" * 1025)),
        Rule(VHOST, "v", "v", "", Vhost("", ("a", "a"))),
        Rule(VHOST, "v", "v", "", Vhost("", ("",))),
        Rule(VHOST, "v", "v", "", SOME),
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


# -- virtual hosts


def vhost(name: str = "v", description: str = "") -> Rule:
    return Rule(VHOST, name, name, "", Vhost(description))


def test_a_virtual_host_takes_its_rules_along_and_none_comes_while_it_goes() -> None:
    access = kept()
    assert applied(access, set_rule_step(permission(vhost="v"))) is Refusal.NO_VHOST
    policy = Rule(POLICY, "v", "p", "", POLICY_VALUE)
    for rule in (vhost(), vhost("v", "again"), permission(vhost="v"), permission(), limit("v"), limit("/"), policy):
        assert applied(access, set_rule_step(rule)) is None
    assert applied(access, clear_rule_step(VHOST, "v", "v")) is None
    assert rules(access) == [permission(), limit("/"), Rule(VHOST, "v", "v", "", Vhost("again", (), True))]
    assert vhosts_going(access.rules) == ["v"]
    assert applied(access, set_rule_step(permission(vhost="v"))) is Refusal.NO_VHOST
    assert applied(access, set_rule_step(limit("v"))) is Refusal.NO_VHOST
    assert applied(access, set_rule_step(vhost())) is Refusal.GOING
    assert applied(access, clear_rule_step(VHOST, "v", "v")) is Refusal.GONE


def limit(name: str) -> Rule:
    return Rule(VHOST_LIMIT, name, name, MAX_QUEUES, Limit(1))


def test_a_virtual_host_has_gone_when_nothing_is_declared_there() -> None:
    contents = contents_with(vhost(), vhost("w"))
    queue, exchange = full_name("v", "q"), full_name("v", "amq.own")
    spec = ExchangeSpec(exchange, "direct", False, False, {})
    for step in (queue_step(queue, False, {}), queue_step("q", False, {}), exchange_step(spec)):
        assert configured(contents, step).refusal is None
    assert configured(contents, vhost_gone_step("v")).refusal is Refusal.GONE, "it is not being deleted"
    assert configured(contents, clear_rule_step(VHOST, "v", "v")).refusal is None
    assert configured(contents, vhost_gone_step("v")).refusal is Refusal.NOT_EMPTY
    configured(contents, delete_queue_step(queue))
    assert configured(contents, vhost_gone_step("v")).refusal is Refusal.NOT_EMPTY
    configured(contents, delete_exchange_step(exchange))
    assert configured(contents, vhost_gone_step("v")).refusal is None
    assert [rule.name for rule in rules(contents.access)] == ["w"]
    assert configured(contents, vhost_gone_step("v")).refusal is Refusal.GONE
    assert configured(contents, set_rule_step(vhost())).refusal is None


def test_a_binding_keeps_a_virtual_host_from_going() -> None:
    """Both its ends may be predeclared, so that nothing else is declared there."""
    contents = contents_with(vhost())
    bound = BindingSpec(full_name("v", "amq.topic"), full_name("v", "amq.fanout"), False, "k", {})
    for step in (binding_step(bound), clear_rule_step(VHOST, "v", "v")):
        assert configured(contents, step).refusal is None
    assert configured(contents, vhost_gone_step("v")).refusal is Refusal.NOT_EMPTY
    configured(contents, delete_exchange_step(full_name("v", "amq.topic")))
    assert configured(contents, vhost_gone_step("v")).refusal is None


def contents_with(*kept_rules: Rule) -> Contents:
    contents = Contents(MemoryBase(), Meta(Position(0, 0), []))
    for step in (found_users_step([], ""), *map(set_rule_step, kept_rules)):
        assert configured(contents, step).refusal is None
    return contents


def configured(contents: Contents, step: Configure) -> Configured:
    check_step(step)
    return contents.configure(msgspec.structs.replace(step, config_id=contents.configuration.last_id + 1))


def test_bindings_from_what_is_predeclared_in_a_virtual_host() -> None:
    contents = contents_with(vhost())
    configured(contents, queue_step(full_name("v", "q"), False, {}))
    bound = BindingSpec(full_name("v", "amq.topic"), full_name("v", "q"), True, "k", {})
    assert configured(contents, binding_step(bound)).refusal is None
    missing = msgspec.structs.replace(bound, source=full_name("v", "e"))
    assert configured(contents, binding_step(missing)).refusal is Refusal.NO_SOURCE


def test_the_default_virtual_host_stays_and_no_operator_says_that_one_has_gone() -> None:
    with pytest.raises(UnknownStep, match="the default virtual host cannot be deleted"):
        check_step(clear_rule_step(VHOST, "/", "/"))
    with pytest.raises(UnknownStep, match="no operator asks for"):
        check_step(audited_step(vhost_gone_step("v"), Origin("", "", "", 1), 10))
    with pytest.raises(UnknownStep):
        check_step(Configure(1, "vhost.gone", "v", b"x"))


@pytest.mark.parametrize(
    ("where", "name", "full"),
    [("/", "q", "q"), ("/", "", ""), ("/", "\0v\0q", "\0/\0\0v\0q"), ("v", "q", "\0v\0q"), ("v", "", "\0v\0")],
)
def test_full_names(where: str, name: str, full: str) -> None:
    assert full_name(where, name) == full
    assert parts_of(full) == (where, name) and local_name(full) == name and vhost_of(full) == where
    assert beside(full, "other") == full_name(where, "other")


def test_no_name_of_one_virtual_host_is_a_full_name_in_another() -> None:
    names = ["", "q", "\0", "\0v\0q", "\0/\0q", "v\0q", "\0\0", "/"]
    full = [full_name(where, name) for where in ("/", "v", "v/", "") for name in names]
    assert len(set(full)) == len(full)


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        (Rule(USER_LIMIT, "", "u", MAX_CONNECTIONS, Limit(3)), {"limit": MAX_CONNECTIONS, "most": 3}),
        (Rule(VHOST_LIMIT, "/", "/", MAX_QUEUES, Limit(3)), {"vhost": "/", "limit": MAX_QUEUES, "most": 3}),
        (
            Rule(TOPIC_PERMISSION, "/", "u", "e", TopicPermission("w", "r")),
            {"vhost": "/", "exchange": "e", "write": "w", "read": "r"},
        ),
        (Rule(VHOST, "v", "v", "", Vhost("d", ("t",))), {"description": "d", "tags": ["t"], "going": False}),
    ],
)
def test_the_history_shows_what_each_kind_of_rule_is_about(rule: Rule, shown: dict[str, object]) -> None:
    access = kept()
    assert applied(access, audited_step(set_rule_step(rule), Origin("root", "::1", "a", 1), 10)) is None
    assert json.loads(access.changes[-1].after) == shown


def test_a_change_that_was_refused_has_set_no_password() -> None:
    access = kept()
    applied(access, audited_step(add_user_step("u", "h2"), Origin("root", "::1", "a", 1), 10))
    change = access.changes[-1]
    assert change.refusal and "password" not in change.after


def test_the_history_keeps_the_beginning_of_what_is_long() -> None:
    """Names of users and addresses come from clients, tags and definitions from operators."""
    access = kept()
    long = Rule(VHOST, "v", "v", "", Vhost("d" * 5000))
    longer = Rule(VHOST, "v", "v", "", Vhost("e" * 5000))
    origin = Origin("r" * 5000, "a" * 5000, "n" * 5000, 1)
    for rule in (long, longer):
        step = msgspec.structs.replace(audited_step(set_rule_step(rule), origin, 10), config_id=7)
        assert plain_step(step) == msgspec.structs.replace(set_rule_step(rule), config_id=7)
        access.apply(step)
    change = access.changes[-1]
    assert (len(change.before), len(change.after)) == (LONGEST_SHOWN, LONGEST_SHOWN)
    assert {len(each) for each in (change.user, change.address, change.node)} == {LONGEST_ORIGIN}
