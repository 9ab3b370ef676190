"""``txha permissions``, ``topic-permissions`` and ``limits``: what goes to the node, and what is said."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker_plugin.cli.access import cluster_asked, limits, permissions, policies, vhosts
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.layout import NodeEntry
from recovery.reader.node_admin import AdminError

PERMISSION = {"kind": "permission", "vhost": "/", "name": "u", "scope": "", "configure": "c", "write": "w", "read": "r"}
TOPIC = {"kind": "topic_permission", "vhost": "/", "name": "u", "scope": "e", "write": "w", "read": "r"}
LIMIT = {"kind": "user_limit", "vhost": "", "name": "u", "scope": "max-channels", "most": 3}
OF_VHOST = {"kind": "vhost_limit", "vhost": "/", "name": "/", "scope": "max-queues", "most": 7}


class Node:
    """The one that is asked. ``asked``: what it was, ``answer``: what it says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: Any = []

    def ask(self, directory: Path, command: str, arguments: dict[str, Any], timeout: float) -> Any:
        self.asked.append((command, arguments))
        if command != "rules.list":
            return self.answer
        rows = self.answer if isinstance(self.answer, list) else []
        return [row for row in rows if row["kind"] in arguments["kinds"]]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node()
    monkeypatch.setattr(cluster_asked, "nodes_shown", lambda dir, config: [NodeEntry("b", None, 1, Path("b"))])
    monkeypatch.setattr(cluster_asked, "node_status", lambda entry: {"state": "active", "generation": 1})
    monkeypatch.setattr(cluster_asked, "ask", node.ask)
    return node


def run(app: Any, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, [words[0], "--dir", "x", *words[1:]])
    if isinstance(found.exception, AdminError | BadArgument):
        raise found.exception
    return found.exit_code, found.output


@pytest.mark.parametrize(
    ("app", "words", "command", "given", "said"),
    [
        (permissions.app, "set u c w r", "rules.set", PERMISSION, "u has these permissions in /, says b"),
        (permissions.app, "set u c w r -p v", "rules.set", PERMISSION | {"vhost": "v"}, "in v, says b"),
        (permissions.app, "clear u", "rules.clear", PERMISSION, "u may do nothing in /, says b"),
        (permissions.topics, "set u e w r", "rules.set", TOPIC, "u has these permissions of keys at e, says b"),
        (permissions.topics, "clear u e", "rules.clear", TOPIC, "u may use all keys at e, says b"),
        (limits.app, "set max-channels 3 --user u", "rules.set", LIMIT, "u has at most 3 as max-channels, says b"),
        (limits.app, "clear max-channels --user u", "rules.clear", LIMIT, "u has no max-channels, says b"),
        (limits.app, "set max-queues 7 -p /", "rules.set", OF_VHOST, "/ has at most 7 as max-queues, says b"),
        (limits.app, "set max-queues -1 -p /", "rules.set", OF_VHOST | {"most": -1}, "/ has no max-queues, says b"),
    ],
)
def test_a_rule_is_set_and_cleared(
    app: Any, words: str, command: str, given: dict[str, Any], said: str, node: Node
) -> None:
    node.answer = given
    status, told = run(app, *words.split())
    ((asked, arguments),) = node.asked
    expected = given if command == "rules.set" else {key: given[key] for key in ("kind", "vhost", "name", "scope")}
    assert (status, asked, {"scope": "", **arguments}) == (0, command, expected)
    assert said in told


@pytest.mark.parametrize("app", [permissions.app, permissions.topics, limits.app])
def test_what_was_done_as_json(app: Any, node: Node) -> None:
    node.answer = PERMISSION
    words = {permissions.app: "set u c w r", permissions.topics: "set u e w r", limits.app: "set max-queues 1 -p /"}
    status, told = run(app, *words[app].split(), "--json")
    assert status == 0 and json.loads(told) == PERMISSION


def test_rules_are_listed_of_one_user_or_virtual_host(node: Node) -> None:
    other = PERMISSION | {"name": "o", "vhost": "v"}
    node.answer = [PERMISSION, other, TOPIC, LIMIT, OF_VHOST]
    assert json.loads(run(permissions.app, "list", "--json")[1]) == [PERMISSION, other]
    assert json.loads(run(permissions.app, "list", "--json", "--user", "o")[1]) == [other]
    assert json.loads(run(permissions.app, "list", "--json", "--vhost", "/")[1]) == [PERMISSION]
    assert json.loads(run(permissions.topics, "list", "--json")[1]) == [TOPIC]
    assert json.loads(run(limits.app, "list", "--json")[1]) == [LIMIT, OF_VHOST]
    assert json.loads(run(limits.app, "list", "--json", "--user", "u")[1]) == [LIMIT]
    assert json.loads(run(limits.app, "list", "--json", "--vhost", "/")[1]) == [OF_VHOST]
    for app, kind in ((policies.app, "policy"), (policies.operators, "operator_policy")):
        here, there = ({**POLICY, "kind": kind, "vhost": vhost} for vhost in ("/", "v"))
        node.answer = [here, there]
        assert json.loads(run(app, "list", "--json", "--vhost", "v")[1]) == [there]


def test_tables(node: Node) -> None:
    node.answer = [PERMISSION | {"name": "\x1b[31mred"}, TOPIC, LIMIT, OF_VHOST]
    told = run(permissions.app, "list")[1]
    assert told.split("\n")[1].split() == ["user", "vhost", "configure", "write", "read"]
    assert "\x1b" not in told
    assert ["u", "/", "e", "w", "r"] in [line.split() for line in run(permissions.topics, "list")[1].split("\n")]
    lines = [line.split() for line in run(limits.app, "list")[1].split("\n")]
    assert ["user", "u", "max-channels", "3"] in lines and ["vhost", "/", "max-queues", "7"] in lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("set max-channels 1", "either --user USER, or --vhost VHOST"),
        ("set max-channels 1 --user u -p /", "either --user USER, or --vhost VHOST"),
        ("set max-queues 1 --user u", "there is no limit 'max-queues': it is one of max-connections, max-channels"),
        ("clear max-channels -p /", "there is no limit 'max-channels': it is one of max-connections, max-queues"),
    ],
)
def test_a_limit_that_cannot_be(words: str, said: str, node: Node) -> None:
    with pytest.raises(BadArgument, match=said):
        run(limits.app, *words.split())
    assert node.asked == []


def test_a_number_that_is_none(node: Node) -> None:
    assert run(limits.app, "set", "max-channels", "many", "--user", "u")[0] == 2
    assert run(permissions.app, "set", "u", "c")[0] == 2
    assert node.asked == []


HOST = {"kind": "vhost", "vhost": "v", "name": "v", "scope": "", "description": "d", "tags": ["t"], "going": False}


def test_a_virtual_host_is_added_and_deleted(node: Node) -> None:
    node.answer = HOST | {"added": True}
    status, told = run(vhosts.app, "add", "v", "--description", "d", "--tag", "t")
    assert status == 0 and "v is added, says b" in told and "no user may connect to v yet" in told
    given = {"kind": "vhost", "vhost": "v", "name": "v", "description": "d", "tags": ["t"]}
    assert node.asked.pop() == ("rules.set", given)
    node.answer = HOST | {"added": False}
    assert "v was there already" in run(vhosts.app, "add", "v")[1]
    assert json.loads(run(vhosts.app, "add", "v", "--json")[1]) == node.answer
    status, told = run(vhosts.app, "delete", "v")
    assert (status, node.asked[-1]) == (0, ("rules.clear", {"kind": "vhost", "vhost": "v", "name": "v"}))
    assert "v is being deleted, says b" in told


def test_what_is_not_said_of_a_virtual_host_that_is_there_stays(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`txha vhosts add v` took its description away."""
    there = HOST | {"description": "mine", "tags": ["t"]}

    def ask(directory: Path, command: str, arguments: dict[str, Any], timeout: float) -> Any:
        node.asked.append((command, arguments))
        return [there] if command == "rules.list" else there | {"added": False}

    monkeypatch.setattr(cluster_asked, "ask", ask)
    said = []
    for words in ((), ("--tag", "u"), ("--description", "")):
        assert run(vhosts.app, "add", "v", *words)[0] == 0
        said.append((node.asked[-1][1]["description"], node.asked[-1][1]["tags"]))
    assert said == [("mine", ["t"]), ("mine", ["u"]), ("", ["t"])]


@pytest.mark.parametrize(("answer", "deleted"), [("y", True), ("yes", True), ("n", False), ("", False)])
def test_at_a_terminal_it_is_asked_before_a_virtual_host_goes(
    answer: str, deleted: bool, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.answer = HOST
    terminal = io.StringIO(f"{answer}\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(vhosts.sys, "stdin", terminal)
    found: list[Any] = []
    monkeypatch.setattr(vhosts, "changed", lambda *given: found.append(given))
    try:
        vhosts.delete("v", dir=Path("x"))
    except SystemExit as ended:
        assert ended.code == 1
    assert bool(found) == deleted
    vhosts.delete("v", dir=Path("x"), yes=True)
    assert len(found) == 1 + deleted


def test_virtual_hosts_are_listed(node: Node) -> None:
    node.answer = [HOST, HOST | {"name": "w", "going": True}]
    assert json.loads(run(vhosts.app, "list", "--json")[1]) == node.answer
    lines = [line.split() for line in run(vhosts.app, "list")[1].split("\n")]
    assert ["v", "d", "t", "there"] in lines and ["w", "d", "t", "being", "deleted"] in lines


POLICY = {
    "kind": "policy", "vhost": "/", "name": "p", "scope": "", "pattern": "^e", "priority": -2,
    "definition": {"alternate-exchange": "a"}, "apply_to": "all",
}


def test_a_policy_is_set_listed_and_cleared(node: Node) -> None:
    node.answer = POLICY
    said = run(policies.app, "set", "p", "^e", '{"alternate-exchange": "a"}', "--priority", "-2")
    assert said == (0, "policy p holds in /, says b\n")
    assert node.asked.pop() == ("rules.set", {key: value for key, value in POLICY.items() if key != "scope"})
    assert run(policies.app, "clear", "p", "-p", "v") == (0, "policy p holds no more in v, says b\n")
    assert node.asked.pop() == ("rules.clear", {"kind": "policy", "vhost": "v", "name": "p"})
    node.answer = [POLICY]
    assert json.loads(run(policies.app, "list", "--json")[1]) == [POLICY]
    assert "alternate-exchange" in run(policies.app, "list")[1]
    assert run(policies.operators, "set", "p", "^q", '{"expires": 5}')[1] == "operator policy p holds in /, says b\n"
    command, rule = node.asked.pop()
    assert (command, rule["kind"], rule["definition"], rule["apply_to"]) == (
        "rules.set", "operator_policy", {"expires": 5}, "all",
    )
    assert run(policies.operators, "list", "--json")[0] == 0
    assert node.asked.pop() == ("rules.list", {"kinds": ["operator_policy"]})
    assert run(policies.operators, "clear", "p")[1] == "operator policy p holds no more in /, says b\n"
    assert node.asked.pop() == ("rules.clear", {"kind": "operator_policy", "vhost": "/", "name": "p"})
    for wrong in ("{", "[]", "x"):
        with pytest.raises(BadArgument, match="a definition is an object of JSON"):
            run(policies.app, "set", "p", "^e", wrong)
        with pytest.raises(BadArgument, match=r'such as {"expires": MILLISECONDS}$'):
            run(policies.operators, "set", "p", "^e", wrong)


@pytest.mark.parametrize("app", [permissions.app, permissions.topics, limits.app])
def test_nothing_is_listed_of_what_is_mistyped(app: Any, node: Node) -> None:
    node.answer = [{"kind": "vhost", "vhost": "v", "name": "v", "scope": ""}, {"kind": "", "name": "u"}]
    with pytest.raises(AdminError, match="there is no virtual host 'w'; see `txha vhosts list`"):
        run(app, "list", "--vhost", "w")
    with pytest.raises(AdminError, match="there is no user 'x'; see `txha users list`"):
        run(app, "list", "--user", "x")
    assert run(app, "list", "--vhost", "v")[0] == run(app, "list", "--user", "u")[0] == 0, "they may do nothing"
