"""``txha calls`` against a node that answers as told: what it is asked, what is shown, and the exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.calls import calls
from broker_plugin.cli.commands import app
from broker_plugin.cli.layout import NodeEntry
from broker_plugin.cli.tables import calls_line, status_table
from recovery.reader.node_admin import AdminError, AnswerLost
from tests.support.commands import txha_here
from txobserver.actions import SHIPPED
from txobserver.calls import ID_BYTES

ROW = {
    "tnx_id": 4,
    "operation": "hook",
    "version": 1,
    "name": "rotate",
    "arguments": '{"arg":["now"]}',
    "initiator": "node-2",
    "created_at": "2026-01-02T03:04:05.678+00:00",
    "id": "ab" * 16,
    "members": ["node-1/1", "node-2/2"],
    "result": "lagging: node-1",
    "lagging": {"node-1": "hook 'rotate' has ended with exit status 1: no [bold]room"},
}
NODES = [
    {"node": "node-1", "counts": True, "tnx_id": 3, "behind": 1, "failing": 4, "reason": "no [bold]room"},
    {"node": "node-2", "counts": True, "tnx_id": 4, "behind": 0, "failing": None, "reason": None},
]
STATUS = {
    "node": "node-1",
    "own": {"running": "hook rotate"},
    "in_force": {"hook": {"rotate": {"arg": ["now"]}}, "log_level": {"": {"level": "info"}}},
    "amiss": {},
    "flags": {"calls": True},
    "nodes": NODES,
    "calls": [ROW],
}
Asked = tuple[str, str, dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    """What nodes were asked; ``answers`` says what they answer."""
    found: list[Asked] = []

    def ask(directory: Path, command: str, arguments: Any = None, timeout: float = 0) -> Any:
        found.append((directory.name, command, arguments or {}))
        answer = ANSWERS[command]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(calls, "ask", ask)
    monkeypatch.setattr(calls, "best_node", lambda dir: {"name": "node-2"})
    monkeypatch.setattr(calls, "node_entry", lambda dir, name: NodeEntry(name, None, 1, dir / name))
    yield found
    ANSWERS.clear()


ANSWERS: dict[str, Any] = {}


def txha(*words: str) -> Result:
    return CliRunner().invoke(app, ["calls", *words, "--dir", "/c"])


def test_the_primary_is_asked_or_the_node_that_is_named(asked: list[Asked]) -> None:
    ANSWERS["calls.list"] = [ROW]
    assert txha("list").exit_code == 0 and txha("list", "--node", "node-3").exit_code == 0
    assert [name for name, _, _ in asked] == ["node-2", "node-3"]
    assert isinstance(CliRunner().invoke(app, ["calls", "list", "--node", "x"]).exception, BadArgument)
    assert isinstance(CliRunner().invoke(app, ["calls", "list"]).exception, BadArgument)


def test_status_shows_nodes_calls_and_reasons(asked: list[Asked]) -> None:
    ANSWERS["calls.status"] = STATUS
    found = txha("status")
    assert found.exit_code == 1, "a node lags"
    for part in (
        "node-1: call 4 fails: no [bold]room",
        "flags raised: calls",
        "in force at node-1: log_level  level=info",
    ):
        assert part in found.output
    for part in ("rotate", "node-2", "2026-01-02 03:04:05", "lagging: node-1", "node-1 runs hook rotate"):
        assert part in found.output
    assert json.loads(txha("status", "--json").output) == STATUS


@pytest.mark.parametrize(
    ("nodes", "kept", "status"),
    [(NODES[1:], [ROW], 0), (NODES, [ROW], 1), (None, [ROW], 1), ([{**NODES[0], "counts": False}], [ROW], 1)],
)
def test_its_exit_status_says_whether_a_node_lags(asked: list[Asked], nodes: Any, kept: Any, status: int) -> None:
    ANSWERS["calls.status"] = {**STATUS, "nodes": nodes, "calls": kept}
    assert txha("status").exit_code == status


def test_what_is_in_force_and_is_not_so_is_told(asked: list[Asked]) -> None:
    ANSWERS["calls.status"] = {**STATUS, "nodes": NODES[1:], "amiss": {"listener x": "its port is taken"}}
    found = txha("status")
    assert found.exit_code == 1 and "node-1: listener x is not so here: its port is taken" in found.output


def test_a_call_that_cannot_be_undone_is_told_where_no_node_lags(asked: list[Asked]) -> None:
    """Also where it was the first call ever: none is kept."""
    stuck = {**NODES[1], "undoing": True, "reason": "hook 'h' has ended with exit status 7"}
    ANSWERS["calls.status"] = {**STATUS, "nodes": [stuck], "calls": []}
    found = txha("status")
    said = "node-2: cannot undo a call that was not made: hook 'h' has ended with exit status 7"
    assert found.exit_code == 1 and said in found.output
    ANSWERS["calls.fix"] = {"node": "node-2", "skipped": [], "failing": None, "undoing": True, "reason": "no room"}
    found = txha("fix", "node-2")
    assert found.exit_code == 1 and "cannot undo a call that was begun there and not made: no room" in found.output


def test_where_there_never_was_a_call_no_node_lags(asked: list[Asked]) -> None:
    silent = {**NODES[0], "tnx_id": None, "behind": None, "failing": None, "reason": None}
    ANSWERS["calls.status"] = {**STATUS, "nodes": [silent], "calls": []}
    assert txha("status").exit_code == 0


def test_one_call_is_shown_whole(asked: list[Asked]) -> None:
    ANSWERS["calls.inspect"] = ROW
    found = txha("inspect", "4")
    assert asked[0][2] == {"call": "4"} and found.exit_code == 0
    for part in ("call 4: lagging: node-1", 'arguments: {"arg":["now"]}', "initiator: node-2", "no [bold]room"):
        assert part in found.output
    assert json.loads(txha("inspect", "4", "--json").output) == ROW


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"id": "x", "result": "done", "tnx_id": 4}, 0, "call 4 is done"),
        ({"id": "x", "result": "not made", "reason": "no room"}, 1, "the call was not made: no room"),
        (
            {"id": "x", "result": "lagging", "tnx_id": 4, "nodes": ["a", "b"], "lagging": {"a": "no room"}},
            3,
            "call 4 is recorded, and has not been run by a (no room); b",
        ),
        ({"id": "x", "result": "unknown"}, 4, "txha calls inspect x"),
    ],
)
def test_a_call_and_what_became_of_it(asked: list[Asked], answer: Any, status: int, said: str) -> None:
    ANSWERS["calls.call"] = answer
    found = txha("call", "hook", "name=rotate", "arg=a=b", "arg=", "--succeed-num", "2", "--timeout", "7")
    assert (found.exit_code, asked[0][1]) == (status, "calls.call") and said in found.output
    ids = {asked[0][2].pop("id")}
    assert asked[0][2] == {
        "operation": "hook",
        "arguments": {"name": ["rotate"], "arg": ["a=b", ""]},
        "succeed_num": 2,
        "timeout": 7.0,
    }
    found = txha("call", "hook", "--json")
    assert (found.exit_code, json.loads(found.output)) == (status, answer)
    assert asked[1][2]["succeed_num"] == "all" and asked[1][2]["timeout"] == 10.0
    ids.add(asked[1][2]["id"])
    assert len(ids) == 2 and {len(bytes.fromhex(each)) for each in ids} == {ID_BYTES}, "each call has one of its own"


def test_a_call_whose_answer_is_lost_may_have_been_made(asked: list[Asked]) -> None:
    """Its node was killed in the middle: who asked has the id, and can ask again."""
    ANSWERS["calls.call"] = AnswerLost("node-2 gave no answer")
    found = txha("call", "hook", "name=rotate")
    id_ = asked[0][2]["id"]
    assert found.exit_code == 4, "1 would say that no node holds anything of it"
    assert f"is not known (node-2 gave no answer): ask again with `txha calls inspect {id_}`" in " ".join(
        found.output.split()
    )
    found = txha("call", "hook", "name=rotate", "--json")
    lost = {"id": asked[1][2]["id"], "result": "unknown", "reason": "node-2 gave no answer"}
    assert (found.exit_code, json.loads(found.output)) == (4, lost)
    ANSWERS["calls.call"] = AdminError("node-2 does not run")
    assert isinstance(txha("call", "hook").exception, AdminError)


@pytest.mark.parametrize(
    "words",
    [
        ("call", "hook", "name"),
        ("call", "hook", "--succeed-num", "0"),
        ("call", "hook", "--succeed-num", "-1"),
        ("call", "hook", "--succeed-num", "some"),
        ("call", "hook", "--timeout", "0"),
        ("call", "hook", "--timeout", "inf"),
        ("call", "hook", "--timeout", "nan"),
        ("reset",),
    ],
)
def test_what_cannot_be_is_refused_before_a_node_is_asked(asked: list[Asked], words: tuple[str, ...]) -> None:
    found = txha(*words)
    assert isinstance(found.exception, BadArgument) and not asked


def test_controls(asked: list[Asked]) -> None:
    ANSWERS["calls.control"] = {"operation": "skip"}
    assert "node-1 skips call 4" in txha("skip", "node-1", "4").output
    assert "node-1 goes forward to call 4" in txha("fast-forward", "node-1", "4").output
    assert "before" in txha("reset", "--yes").output
    assert [each for _, _, each in asked] == [
        {"operation": "skip", "node": "node-1", "tnx_id": 4},
        {"operation": "fast-forward", "node": "node-1", "tnx_id": 4},
        {"operation": "reset", "node": "", "tnx_id": 0},
    ]
    assert json.loads(txha("skip", "node-1", "4", "--json").output) == {"operation": "skip"}
    assert txha("skip", "node-1", "0").exit_code == 2
    ANSWERS["calls.control"] = AdminError("no call 4 is remembered")
    assert isinstance(txha("skip", "node-1", "4").exception, AdminError)


def test_fix_says_what_is_left(asked: list[Asked]) -> None:
    ANSWERS["calls.fix"] = {"node": "node-1", "skipped": [1, 2], "failing": None, "reason": None}
    found = txha("fix", "node-1")
    assert found.exit_code == 0 and "node-1 skips 1, 2" in found.output
    ANSWERS["calls.fix"] = {"node": "node-1", "skipped": [], "failing": 3, "reason": "no room"}
    found = txha("fix", "node-1")
    assert found.exit_code == 1 and "txha calls skip node-1 3" in found.output and "no room" in found.output
    assert txha("fix", "node-1", "--json").exit_code == 1


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        ({"failing": 4, "behind": 2, "begun": None, "reason": "no room"}, "cluster call 4 fails here: no room"),
        ({"failing": None, "behind": 2, "begun": None, "reason": None}, "2 cluster calls behind"),
        ({"failing": None, "behind": 0, "begun": "ab", "reason": "no room"}, "cannot be undone: no room"),
        ({"failing": None, "behind": 0, "begun": "ab", "reason": None}, ""),
        ({"failing": None, "behind": 0, "begun": None, "reason": None}, ""),
        (None, ""),
    ],
)
def test_a_node_s_status_says_what_is_wrong(standing: Any, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = {"name": "node-1", "state": "ready", "generation": 1, "ready": True}
    found = {**status, "open_transactions": 0, "prepared_transactions": 0, "calls": standing}
    assert said in calls_line(found) and bool(calls_line(found)) == bool(said)
    status_table([found])
    assert said in capsys.readouterr().out


CHANGE = {
    "tnx_id": 7,
    "operation": "user.tags",
    "name": "eve",
    "user": "boss",
    "address": "10.0.0.9",
    "node": "node-3",
    "created_at": "2026-01-02T03:04:05.678+00:00",
    "before": '{"tags":["a"]}',
    "after": '{"tags":["b"]}',
    "result": "gone",
}


def test_who_has_changed_what(asked: list[Asked]) -> None:
    ANSWERS["changes.list"] = [CHANGE]
    shown = txha("list", "--by", "boss")
    assert asked == [("node-2", "changes.list", {"by": "boss"})] and not shown.exit_code
    for word in ("7", "user.tags", "eve", "boss", "10.0.0.9", "node-3", "2026-01-02 03:04:05", '["a"]', "gone"):
        assert word in shown.output
    assert json.loads(txha("list", "--by", "", "--json").output) == [CHANGE]
    assert asked[-1] == ("node-2", "changes.list", {"by": ""})


def test_the_help_names_each_operation() -> None:
    told = txha_here("calls", "call", "--help").stdout
    assert [each for each in SHIPPED.operations() if each not in told] == []
