"""What a cluster holds, as a file of definitions in RabbitMQ's form."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from broker_plugin.definitions.access_entries import VHOST_LIMITS, written_hash
from broker_plugin.definitions.state import DefinitionsHeld
from txobserver.policies import Policy
from txobserver.rules import (
    OPERATOR_POLICY,
    POLICY,
    USER_LIMIT,
    VHOST_LIMIT,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    Vhost,
)
from txobserver.vhosts import parts_of

Row = dict[str, Any]


def written(state: DefinitionsHeld, version: str) -> Row:
    """The file of the cluster. ``version`` is that of txha. Of users it holds the hashes of their passwords."""
    rules = sorted(state.rules, key=lambda rule: rule.place)
    return {
        "product_name": "txha",
        "product_version": version,
        "rabbitmq_definition_format": "cluster",
        "users": [_user(each, rules) for each in sorted(state.users, key=lambda user: user.name)],
        "vhosts": [_vhost(name, value) for name, value in _vhosts(rules)],
        "permissions": [_permission(rule, rule.value) for rule in rules if isinstance(rule.value, Permission)],
        "topic_permissions": [_topic(rule, rule.value) for rule in rules if isinstance(rule.value, TopicPermission)],
        "global_parameters": [],
        **_scoped(state, rules),
    }


def written_vhost(state: DefinitionsHeld, version: str, vhost: str) -> Row:
    """The file of one virtual host: what is declared there, its policies and limits, and nothing of users."""
    rules = sorted((rule for rule in state.rules if rule.vhost == vhost), key=lambda rule: rule.place)
    about = next((rule.value for rule in rules if isinstance(rule.value, Vhost)), Vhost())
    sections = {
        section: [{key: value for key, value in row.items() if key != "vhost"} for row in rows if row["vhost"] == vhost]
        for section, rows in _scoped(state, rules).items()
    }
    said: Row = {"description": about.description, "tags": list(about.tags)}
    return {
        "product_name": "txha",
        "product_version": version,
        "rabbitmq_definition_format": "single_virtual_host",
        "original_vhost_name": vhost,
        "metadata": said,
        **sections,
    }


def as_json(file: Row) -> str:
    """The file as text. Of the arguments of AMQP, times become seconds and octets become text, as in RabbitMQ."""
    return json.dumps(file, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return int(value.timestamp()) if isinstance(value, datetime) else str(value)


def _scoped(state: DefinitionsHeld, rules: list[Rule]) -> Row:
    """The sections of what stands in virtual hosts."""
    return {
        "parameters": [*_limits_of_vhosts(rules), *map(_operator_policy, _policies(rules, OPERATOR_POLICY))],
        "policies": _policies(rules, POLICY),
        "queues": [_queue(each) for each in sorted(state.queues, key=lambda spec: spec.name)],
        "exchanges": [_exchange(each) for each in sorted(state.exchanges, key=lambda spec: spec.name)],
        "bindings": [_binding(each) for each in state.bindings],
    }


def _vhosts(rules: list[Rule]) -> list[tuple[str, Vhost]]:
    """But for those that are being deleted."""
    return [(rule.name, rule.value) for rule in rules if isinstance(rule.value, Vhost) and not rule.value.going]


def _user(user: Any, rules: list[Rule]) -> Row:
    algorithm, hashed = written_hash(user.hash)
    limits = {
        rule.scope: rule.value.most
        for rule in rules
        if rule.kind == USER_LIMIT and rule.name == user.name and isinstance(rule.value, Limit)
    }
    return {
        "name": user.name,
        "password_hash": hashed,
        "hashing_algorithm": algorithm,
        "tags": list(user.tags),
        "limits": limits,
    }


def _vhost(name: str, value: Vhost) -> Row:
    said: Row = {"description": value.description, "tags": list(value.tags)}
    return {"name": name, **said, "metadata": said}


def _permission(rule: Rule, value: Permission) -> Row:
    patterns = {"configure": value.configure, "write": value.write, "read": value.read}
    return {"user": rule.name, "vhost": rule.vhost, **patterns}


def _topic(rule: Rule, value: TopicPermission) -> Row:
    where = {"user": rule.name, "vhost": rule.vhost, "exchange": rule.scope}
    return {**where, "write": value.write, "read": value.read}


def _limits_of_vhosts(rules: list[Rule]) -> list[Row]:
    limits: dict[str, Row] = {}
    for rule in rules:
        if rule.kind == VHOST_LIMIT and isinstance(rule.value, Limit):
            limits.setdefault(rule.vhost, {})[rule.scope] = rule.value.most
    return [
        {"vhost": vhost, "component": VHOST_LIMITS, "name": "limits", "value": value} for vhost, value in limits.items()
    ]


def _policies(rules: list[Rule], kind: str) -> list[Row]:
    return [_policy(rule, rule.value) for rule in rules if rule.kind == kind and isinstance(rule.value, Policy)]


def _policy(rule: Rule, value: Policy) -> Row:
    said = {"pattern": value.pattern, "apply-to": value.apply_to, "definition": value.definition}
    return {"vhost": rule.vhost, "name": rule.name, **said, "priority": value.priority}


def _operator_policy(row: Row) -> Row:
    """It is a parameter in a file, and a policy in all other respects."""
    vhost, name = row.pop("vhost"), row.pop("name")
    return {"vhost": vhost, "component": OPERATOR_POLICY, "name": name, "value": row}


def _queue(spec: Any) -> Row:
    vhost, name = parts_of(spec.name)
    return {
        "name": name,
        "vhost": vhost,
        "durable": True,
        "auto_delete": spec.auto_delete,
        "arguments": spec.arguments,
    }


def _exchange(spec: Any) -> Row:
    vhost, name = parts_of(spec.name)
    return {
        "name": name,
        "vhost": vhost,
        "type": spec.kind,
        "durable": True,
        "auto_delete": spec.auto_delete,
        "internal": spec.internal,
        "arguments": spec.arguments,
    }


def _binding(spec: Any) -> Row:
    vhost, source = parts_of(spec.source)
    return {
        "source": source,
        "vhost": vhost,
        "destination": parts_of(spec.destination)[1],
        "destination_type": "queue" if spec.to_queue else "exchange",
        "routing_key": spec.routing_key,
        "arguments": spec.arguments,
    }
