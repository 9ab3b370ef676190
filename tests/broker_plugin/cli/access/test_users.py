"""``txha users``: what goes to the node, what is said, and where a password may not stand."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker_plugin.amqp.protocol.passwords import matches
from broker_plugin.cli.access import cluster_asked
from broker_plugin.cli.access import users as module
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.layout import NodeEntry
from recovery.reader.node_admin import AdminError
from tests.broker_plugin.amqp.protocol.test_passwords import of_rabbitmq

SECRET = "s3cret-word"


class Nodes:
    """Three nodes of which the second is primary. ``asked``: which one was asked what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states = {"a": "ready", "b": "active", "c": "down"}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.answer: Any = {"name": "app", "tags": ["t"]}
        entries = [NodeEntry(name, None, 1, Path(name)) for name in self.states]
        monkeypatch.setattr(cluster_asked, "nodes_shown", lambda dir, config: entries)
        monkeypatch.setattr(cluster_asked, "node_status", self._status)
        monkeypatch.setattr(cluster_asked, "ask", self._ask)

    def _status(self, entry: NodeEntry) -> dict[str, Any]:
        return {"state": self.states[entry.name], "generation": 1}

    def _ask(self, directory: Path, command: str, arguments: dict[str, Any], timeout: float) -> Any:
        self.asked.append((str(directory), command, arguments))
        return self.answer


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(monkeypatch)


def run(*arguments: str, given: str = SECRET) -> tuple[int, str]:
    found = CliRunner().invoke(module.app, [*arguments, "--dir", "x"], input=f"{given}\n")
    if isinstance(found.exception, AdminError | BadArgument):
        raise found.exception
    return found.exit_code, found.output


def test_a_password_leaves_the_command_as_a_hash_only(nodes: Nodes) -> None:
    status, said = run("add", "app", "--tag", "t")
    ((node, command, arguments),) = nodes.asked
    assert (status, node, command) == (0, "b", "users.add") and "app is added, says b" in said
    assert matches(arguments.pop("hash"), SECRET) and arguments == {"name": "app", "tags": ["t"]}
    run("passwd", "app")
    assert matches(nodes.asked[-1][2]["hash"], SECRET) and SECRET not in repr(nodes.asked) + said


def test_a_hash_of_rabbitmq_is_passed_on_as_it_is(nodes: Nodes) -> None:
    kept = of_rabbitmq("sha512", SECRET)
    run("add", "app", "--hash", given=kept)
    assert nodes.asked[-1][2]["hash"] == kept
    with pytest.raises(BadArgument, match="no hash that is known"):
        run("add", "app", "--hash", given="kI3GCqW5JLMJa4iX1lo7X4D6")
    with pytest.raises(BadArgument, match="must not be empty"):
        run("add", "app", given="")
    assert len(nodes.asked) == 1


def test_no_option_takes_a_password(nodes: Nodes) -> None:
    for command in ("add", "passwd", "authenticate"):
        status, _ = run(command, "app", SECRET)
        assert status == 2 and nodes.asked == []
        help_text = CliRunner().invoke(module.app, [command, "--help"]).output
        assert "--password" not in help_text


def test_authenticate_says_so_and_by_its_exit_status(nodes: Nodes) -> None:
    for right, status in ((True, 0), (False, 1)):
        nodes.answer = {"name": "app", "right": right}
        assert run("authenticate", "app")[0] == status
        assert json.loads(run("authenticate", "app", "--json")[1])["right"] is right


def test_any_node_that_runs_is_asked_where_there_is_no_primary(nodes: Nodes) -> None:
    nodes.states["b"] = "down"
    run("delete", "app")
    assert nodes.asked[-1][:2] == ("a", "users.delete")
    nodes.states["a"] = "down"
    with pytest.raises(AdminError, match="no node answers; start the cluster first"):
        run("delete", "app")


def test_tags_and_the_list(nodes: Nodes) -> None:
    nodes.answer = {"name": "app", "tags": []}
    assert "none" in run("set-tags", "app")[1] and nodes.asked[-1][2]["tags"] == []
    nodes.answer = [{"name": "app", "tags": ["a", "b"]}]
    assert "a, b" in run("list")[1] and json.loads(run("list", "--json")[1]) == nodes.answer


def test_a_person_is_asked_twice_for_a_new_password_and_once_for_one_to_try(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker_plugin.cli import passwords

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked: list[bool] = []
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(
        passwords.typer, "prompt", lambda *args, **more: asked.append(more["confirmation_prompt"]) or SECRET
    )
    assert passwords.given_password(confirm=True) == passwords.given_password(confirm=False) == SECRET
    assert asked == [True, False]
