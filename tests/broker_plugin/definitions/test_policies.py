"""Policies and operator policies in files of definitions: each goes where the file says, and is written so again."""

from __future__ import annotations

import json
from typing import Any

from broker_plugin.definitions.writing import as_json, written, written_vhost
from tests.broker_plugin.definitions.held import Held
from txobserver.policies import ALL, QUEUES, Policy
from txobserver.rules import OPERATOR_POLICY, POLICIES, POLICY, Rule

FILE: dict[str, Any] = {
    "vhosts": [{"name": "/"}, {"name": "v"}],
    "policies": [
        {
            "vhost": "v",
            "name": "p",
            "pattern": "^a",
            "apply-to": "all",
            "definition": {"alternate-exchange": "e", "expires": 5},
            "priority": -3,
        },
        {"vhost": "/", "name": "p", "pattern": "", "apply-to": "queues", "definition": {"expires": 6}},
    ],
    "parameters": [
        {
            "vhost": "v",
            "component": "operator_policy",
            "name": "p",
            "value": {"pattern": "^b", "definition": {"expires": 7}, "priority": 2, "apply-to": "queues"},
        },
        {
            "vhost": "v",
            "component": "operator_policy",
            "name": "q",
            "value": {"pattern": "", "definition": {"expires": 8}, "priority": 0, "apply-to": "all"},
        },
        {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 9}},
    ],
}
"""As RabbitMQ writes them"""
RULES = [
    Rule(OPERATOR_POLICY, "v", "p", "", Policy("^b", 2, {"expires": 7}, QUEUES)),
    Rule(OPERATOR_POLICY, "v", "q", "", Policy("", 0, {"expires": 8}, ALL)),
    Rule(POLICY, "/", "p", "", Policy("", 0, {"expires": 6}, QUEUES)),
    Rule(POLICY, "v", "p", "", Policy("^a", -3, {"alternate-exchange": "e", "expires": 5}, ALL)),
]


def policies(held: Held) -> list[Rule]:
    found = held.contents.access.rules
    return [found[place] for place in sorted(found) if found[place].kind in POLICIES]


def test_each_goes_to_its_virtual_host_as_its_kind() -> None:
    held = Held()
    found = held.imported(json.dumps(FILE))
    assert not found.left_out and policies(held) == RULES
    assert (found.counts["policies"], found.counts["operator policies"]) == (2, 2)


def test_what_is_written_is_what_was_read() -> None:
    held = Held()
    held.imported(json.dumps(FILE))
    file = written(held.state, "1")
    assert len(file["parameters"]) == len(FILE["parameters"])
    assert all(each in FILE["parameters"] for each in file["parameters"])
    assert file["policies"] == [FILE["policies"][1] | {"priority": 0}, FILE["policies"][0]]
    other = Held()
    assert not other.imported(as_json(file)).left_out and policies(other) == RULES


def test_the_file_of_one_virtual_host_has_those_of_it() -> None:
    held, other = Held(), Held()
    held.imported(json.dumps(FILE))
    other.imported('{"vhosts": [{"name": "w"}]}')
    file = as_json(written_vhost(held.state, "1", "v"))
    assert not other.imported(file, "w").left_out
    assert [(rule.kind, rule.vhost, rule.name) for rule in policies(other)] == [
        (OPERATOR_POLICY, "w", "p"),
        (OPERATOR_POLICY, "w", "q"),
        (POLICY, "w", "p"),
    ]
