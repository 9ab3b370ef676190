"""What an operator asks of calls at a node, against the process as it is wired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker_plugin.logs.prose import sentence
from broker_plugin.node.calls import admin
from broker_plugin.node.readiness import Readiness
from broker_plugin.node.status import status
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.node.calls.one_node import CallsNode
from txobserver.actions import RunHook
from txobserver.calls import CallRecord, call_step
from txobserver.events import Configure
from txobserver.ids import Member


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CallsNode]:
    level = logging.getLogger().level
    node = CallsNode(tmp_path / "a")
    node.start()
    yield node
    node.stop()
    logging.getLogger().setLevel(level)


def test_a_call_is_made_listed_and_inspected(node: CallsNode) -> None:
    answer = node.make("log_level", level="error")
    assert (answer["result"], answer["tnx_id"]) == ("done", 1)
    (row,) = node.ask("list")
    created = row.pop("created_at")
    assert created.endswith("+00:00")
    assert row == {
        "tnx_id": 1,
        "operation": "log_level",
        "version": 1,
        "name": "",
        "arguments": '{"level":"error"}',
        "initiator": "a",
        "id": answer["id"],
        "members": ["a/1"],
        "result": "done",
        "lagging": {},
        "passed_over": [],
    }
    for call in ("1", answer["id"]):
        assert node.ask("inspect", call=call)["id"] == answer["id"]
    assert "no call 2 is kept" in node.ask("inspect", call="2")


def test_a_call_whose_asker_has_gone_is_made_to_its_end(node: CallsNode) -> None:
    """The administration cancels what waits for its outcome only to tell it."""
    call = node.handlers()["calls.call"]

    async def asked_and_gone() -> None:
        asking = asyncio.ensure_future(call({"operation": "hook", "arguments": {"name": ["h"], "arg": ["1"]}}))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()

    asyncio.run_coroutine_threadsafe(asked_and_gone(), node.loop).result(10)
    wait_until(lambda: [each["result"] for each in node.ask("list")] == ["done"], 10, "the call")
    assert node.ran == ["0:1"] and not node.guard.broken
    assert node.make("hook", name="h", arg="2")["result"] == "done"


def test_an_id_that_was_drawn_by_who_asks_is_used_once(node: CallsNode) -> None:
    """The answer may be lost: then the call is looked for by its id, and never made twice."""
    asked = {"operation": "log_level", "arguments": {"level": ["error"]}}
    assert node.ask("call", **asked, id="ab" * 16)["id"] == "ab" * 16
    assert "was asked for before" in node.ask("call", **asked, id="ab" * 16)
    for wrong in ("ab", "x" * 32, 7):
        assert "an id has 32 hexadecimal digits" in node.ask("call", **asked, id=wrong)
    assert len(node.ask("list")) == 1


def test_how_far_a_node_is(node: CallsNode) -> None:
    found = node.ask("status")
    assert found["nodes"][0]["tnx_id"] is None and found["nodes"][0]["reason"] is None and found["calls"] == []
    node.make("flag", name="calls")
    found = node.ask("status")
    readiness = Readiness(1, 1)
    expected = {"node": "a", "member": "a/1", "counts": True, "tnx_id": 1, "behind": 0, "failing": None, "reason": None}
    expected["undoing"] = False
    assert found["nodes"] == [expected] and found["flags"] == {"calls": True, "members": False}
    core = node.parts.core
    shown = node.call(lambda: status(core, Member("a", "1"), readiness))["calls"]
    assert shown["last"] == shown["cursor"] == 1 and shown["behind"] == 0 and shown["flags"] == ["calls"]


def test_a_flag_that_fails_nowhere_is_never_lowered(node: CallsNode) -> None:
    assert "no flag 'x' is known here" in node.make("flag", name="x")
    assert node.ask("list") == []


def appended(node: CallsNode, step: Configure) -> None:
    leading = node.parts.core.leading
    assert leading is not None
    node.parts.shell.report(lambda: leading.desk._append_step(step, lambda error: None))


def failing(node: CallsNode, *given: str) -> None:
    """Recorded calls that fail here: as those of another node would."""
    (node.directory / "fails").write_text("no room")
    for number, argument in enumerate(given, 100):
        arguments = msgspec.msgpack.encode(RunHook([argument]))
        record = CallRecord(number.to_bytes(16, "big"), 1, "h", arguments, "b", 7, ["a/1"], 100)
        node.call(appended, node, call_step("hook", record))
    wait_until(lambda: node.ask("status")["own"]["failing"] == 1, 10, "the failure")


def test_a_failing_node_is_shown_with_its_reason(node: CallsNode) -> None:
    failing(node, "1")
    wait_until(lambda: node.ask("status")["nodes"][0]["failing"] == 1, 10, "the report")
    found = node.ask("status")
    assert "no room" in found["nodes"][0]["reason"] and found["nodes"][0]["behind"] == 1
    assert found["calls"][0]["result"] == "lagging: a" and "no room" in found["calls"][0]["lagging"]["a"]
    answer = node.make("log_level", level="error")
    assert answer["result"] == "not made" and "call 1 fails here" in answer["reason"]


def test_skip_and_fast_forward_and_reset(node: CallsNode) -> None:
    failing(node, "1", "2", "3", "4")
    assert node.ask("control", operation="skip", node="a", tnx_id=1)["node"] == "a"
    wait_until(lambda: node.ask("status")["own"]["failing"] == 2, 10, "the next one")
    assert node.ask("inspect", call=1)["result"] == "done, or passed over: a", "nobody has run it here"
    assert node.ask("inspect", call=2)["result"] == "lagging: a"
    node.ask("control", operation="fast-forward", node="a", tnx_id=3)
    wait_until(lambda: node.ask("status")["own"]["failing"] == 4, 10, "the last one")
    assert "no call 77" in node.ask("control", operation="skip", node="a", tnx_id=77)
    assert "no node 'z'" in node.ask("control", operation="skip", node="z", tnx_id=1)
    assert "it wants operation" in node.ask("control", operation="jump", node="a", tnx_id=1)
    node.ask("control", operation="reset")
    wait_until(lambda: node.ask("status")["own"]["behind"] == 0, 10, "the end")
    assert "0:3" not in node.ran, "what a node was moved over is not run"
    over = ["done, or passed over: a"] * 4
    wait_until(lambda: [each["result"] for each in node.ask("list")] == over, 10, "the report")
    assert node.ask("inspect", call=1)["passed_over"] == ["a"]


def test_the_log_says_which_controls_were_made(node: CallsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused is not told as done."""
    said: list[tuple[int, str]] = []
    monkeypatch.setattr(admin, "tell", lambda log, level, event: said.append((level, sentence(event))))
    failing(node, "1", "2")
    for operation, of, tnx_id in (("skip", "a", 99), ("skip", "a", 1), ("fast-forward", "a", 77), ("reset", "", 0)):
        node.ask("control", operation=operation, node=of, tnx_id=tnx_id)
    assert said == [
        (logging.INFO, "an operator wanted a to skip call 99: no call 99 is remembered"),
        (logging.WARNING, "an operator lets a skip call 1"),
        (logging.INFO, "an operator wanted a to go forward to call 77: the last call is 2"),
        (logging.WARNING, "an operator resets the cluster calls"),
    ]


def test_the_log_has_a_control_whose_asker_has_gone(node: CallsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(admin, "tell", lambda log, level, event: said.append(sentence(event)))
    failing(node, "1")
    control = node.handlers()["calls.control"]

    async def asked_and_gone() -> None:
        asking = asyncio.ensure_future(control({"operation": "skip", "node": "a", "tnx_id": 1}))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])

    asyncio.run_coroutine_threadsafe(asked_and_gone(), node.loop).result(10)
    wait_until(lambda: said == ["an operator lets a skip call 1"], 10, "the log")


def test_fix_skips_what_has_been_superseded_and_no_more(node: CallsNode) -> None:
    failing(node, "1", "2", "3")
    wait_until(lambda: node.ask("status")["nodes"][0]["failing"] == 1, 10, "the report")
    found = node.ask("fix", node="a")
    assert (found["skipped"], found["failing"]) == ([1, 2], 3) and "no room" in found["reason"]
    (node.directory / "fails").unlink()
    wait_until(lambda: node.ask("status")["nodes"][0]["behind"] == 0, 10, "the last one")
    assert node.ran[-1] == "0:3" and node.ask("fix", node="a")["failing"] is None
    assert "no node 'z'" in node.ask("fix", node="z")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"operation": "log_level", "arguments": {"level": ["info"]}, "succeed_num": 2}, "from 1 to 1"),
        ({"operation": "log_level", "arguments": {"level": ["info"]}, "succeed_num": True}, "from 1 to 1"),
        ({"operation": "log_level", "arguments": {"level": ["info"]}, "timeout": 0}, "timeout is a number"),
        ({"operation": "log_level", "arguments": {"level": ["info"]}, "timeout": 1e9}, "timeout is a number"),
        ({"operation": "log_level", "arguments": {"level": "info"}}, "arguments are texts"),
        ({"operation": "log_level", "arguments": None}, "arguments are texts"),
        ({"operation": "drop", "arguments": {}}, "no action 'drop'"),
    ],
)
def test_what_cannot_be_asked_is_refused(node: CallsNode, arguments: dict[str, Any], said: str) -> None:
    assert said in node.ask("call", **arguments)
