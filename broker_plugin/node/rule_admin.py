"""What an operator asks of virtual hosts and of what users may do there, at any node.

A rule is written as ``kind``, ``vhost``, ``name``, ``scope`` (see ``txobserver.rules``), and the fields of its value.
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.embedded.rights.patterns import PatternRefused, matcher
from broker_plugin.node.audited_changes import AuditedChanges, text_in
from txobserver.policies import ALL, APPLIES_TO, LARGEST_PRIORITY, Policy, check_policy
from txobserver.refusal import Refusal
from txobserver.rules import (
    LARGEST_LIMIT,
    OF_USERS,
    OPERATOR_POLICY,
    POLICIES,
    VALUE_OF,
    VHOST,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    Value,
    Vhost,
    clear_rule_step,
    place,
    set_rule_step,
)
from txobserver.vhosts import DEFAULT_VHOST

LOOK = "txha calls list --by USER"


class RuleAdmin:
    """``changes``: how what is asked for here comes into the stream."""

    def __init__(self, changes: AuditedChanges) -> None:
        self._changes = changes

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {"rules.list": self._list, "rules.set": self._set, "rules.clear": self._clear}

    async def _list(self, arguments: dict[str, Any]) -> Any:
        """Those of some kinds, in the order of their places."""
        kinds = arguments.get("kinds")
        if not isinstance(kinds, list) or not set(map(str, kinds)) <= VALUE_OF.keys():
            raise CommandRefused(f"kinds are a list of {', '.join(VALUE_OF)}")
        rules = self._changes.kept().rules
        return [shown(rules[each]) for each in sorted(rules) if rules[each].kind in kinds]

    async def _set(self, arguments: dict[str, Any]) -> Any:
        kind, vhost, name, scope = _where(arguments)
        rule = Rule(kind, vhost, name, scope, _value(kind, arguments))
        there = rule.place in self._changes.kept().rules
        await self._changes.change(name, set_rule_step(rule), arguments, lambda error: _not_set(rule, error), LOOK)
        return shown(rule) | {"added": not there}

    async def _clear(self, arguments: dict[str, Any]) -> Any:
        kind, vhost, name, scope = _where(arguments)
        there = self._changes.kept().rules.get(place(kind, vhost, name, scope))
        if kind == VHOST and name == DEFAULT_VHOST:
            raise CommandRefused("the default virtual host cannot be deleted")
        step = clear_rule_step(kind, vhost, name, scope)
        if kind == VHOST:
            sentence = f"there is no virtual host {name!r}, or it is being deleted; see `txha vhosts list`"
        elif kind in POLICIES:
            sentence = f"there is no {kind.replace('_', ' ')} {name!r} in virtual host {vhost!r}"
        else:
            sentence = f"there is no {kind.replace('_', ' ')} of {name!r}" + (f" for {scope!r}" if scope else "")
        await self._changes.change(
            name, step, arguments, lambda error: sentence if error == Refusal.GONE else error, LOOK
        )
        return {} if there is None else shown(there)


def shown(rule: Rule) -> dict[str, Any]:
    """A rule as operators are shown it."""
    where = {"kind": rule.kind, "vhost": rule.vhost, "name": rule.name, "scope": rule.scope}
    return where | msgspec.structs.asdict(rule.value)


def _where(arguments: dict[str, Any]) -> tuple[str, str, str, str]:
    kind, name = text_in(arguments, "kind"), text_in(arguments, "name")
    vhost, scope = arguments.get("vhost", ""), arguments.get("scope", "")
    if kind not in VALUE_OF:
        raise CommandRefused(f"a kind is one of {', '.join(VALUE_OF)}")
    if not isinstance(vhost, str) or not isinstance(scope, str):
        raise CommandRefused("vhost and scope are texts")
    return kind, vhost, name, scope


def _value(kind: str, arguments: dict[str, Any]) -> Value:
    """Raises CommandRefused."""
    if VALUE_OF[kind] is Vhost:
        return _vhost(arguments)
    if VALUE_OF[kind] is Policy:
        return _policy(arguments, kind == OPERATOR_POLICY)
    if VALUE_OF[kind] is Limit:
        most = arguments.get("most")
        if type(most) is not int or not -1 <= most <= LARGEST_LIMIT:
            raise CommandRefused(f"a limit is a whole number from 0 to {LARGEST_LIMIT}, or -1 for none")
        return Limit(most)
    write, read = _pattern(arguments, "write"), _pattern(arguments, "read")
    if VALUE_OF[kind] is TopicPermission:
        return TopicPermission(write, read)
    return Permission(_pattern(arguments, "configure"), write, read)


def _vhost(arguments: dict[str, Any]) -> Vhost:
    """Raises CommandRefused."""
    description, tags = arguments.get("description", ""), arguments.get("tags", [])
    if not isinstance(description, str) or not isinstance(tags, list) or not all(isinstance(t, str) for t in tags):
        raise CommandRefused("a description is a text, and tags are a list of texts")
    return Vhost(description, tuple(sorted(set(tags))))


def _policy(arguments: dict[str, Any], of_operators: bool) -> Policy:
    """Raises CommandRefused."""
    priority, definition = arguments.get("priority", 0), arguments.get("definition")
    apply_to = arguments.get("apply_to", ALL)
    if type(priority) is not int:
        raise CommandRefused(f"a priority is a whole number from {-LARGEST_PRIORITY} to {LARGEST_PRIORITY}")
    if not isinstance(definition, dict):
        raise CommandRefused("a definition is an object of JSON")
    if not isinstance(apply_to, str):
        raise CommandRefused(f"apply_to is one of {', '.join(APPLIES_TO)}")
    policy = Policy(_pattern(arguments, "pattern"), priority, definition, apply_to)
    try:
        check_policy(policy, of_operators)
    except ValueError as error:
        raise CommandRefused(str(error)) from None
    return policy


def _pattern(arguments: dict[str, Any], key: str) -> str:
    """Raises CommandRefused."""
    found = arguments.get(key)
    if not isinstance(found, str):
        raise CommandRefused(f"{key} is a text: the pattern of the names")
    try:
        matcher(found)
    except PatternRefused as error:
        raise CommandRefused(f"{key}: {error}") from None
    return found


def _not_set(rule: Rule, error: str) -> str:
    if error == Refusal.GONE and rule.kind in OF_USERS:
        return f"there is no user {rule.name!r}; see `txha users list`"
    if error == Refusal.NO_VHOST:
        return f"there is no virtual host {rule.vhost!r}; see `txha vhosts list`"
    if error == Refusal.GOING:
        return f"virtual host {rule.name!r} is being deleted: add it when `txha vhosts list` does not show it any more"
    if error == Refusal.TOO_MANY:
        return "the cluster has as many permissions and limits as it can keep; clear some first"
    return error
