"""A node's surroundings where the simulator sees nothing: files that cannot be written, actions that hang, restarts."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.logs.events import ActionNotRun
from broker_plugin.node.calls import surroundings
from broker_plugin.node.calls.kept_file import KeptFile
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.node.calls.one_node import CallsNode
from txobserver.ports.store import StoreDamaged


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CallsNode]:
    yield from running(CallsNode(tmp_path / "a"))


def running(node: CallsNode) -> Iterator[CallsNode]:
    node.start()
    yield node
    node.stop()


def again(node: CallsNode) -> Iterator[CallsNode]:
    """The same directory, another process."""
    return running(CallsNode(node.directory).after(node))


def test_an_action_is_in_force_again_after_a_restart(tmp_path: Path) -> None:
    first = running(CallsNode(tmp_path / "a"))
    node = next(first)
    assert node.make("log_level", level="error")["result"] == "done"
    assert logging.getLogger().level == logging.ERROR
    list(first)
    logging.getLogger().setLevel(logging.INFO)
    second = again(node)
    node = next(second)
    assert logging.getLogger().level == logging.ERROR
    found = node.ask("status")
    assert found["in_force"] == {"log_level": {"": {"level": "error"}}} and found["nodes"][0]["behind"] == 0
    list(second)


def test_one_that_fails_is_undone_by_what_was_in_force(node: CallsNode) -> None:
    """``undo_that_fails_is_told``: who has asked learns at once that the call was not made and what is still there."""
    assert node.make("hook", name="h", arg=["1"])["result"] == "done"
    (node.directory / "fails").write_text("no room")
    answer = node.make("hook", name="h", arg=["2"])
    assert answer["result"] == "not made" and "could not be undone here yet, and is tried again" in answer["reason"]
    assert answer["reason"].count("no room") == 2, "why it failed, and why it could not be undone"
    wait_until(lambda: node.ask("status")["nodes"][0]["undoing"], 10, "what every node shows")
    found = node.ask("status")
    assert found["own"]["begun"] and found["own"]["undoing"] and "no room" in found["nodes"][0]["reason"]
    assert "no room" in found["own"]["reason"]
    fixed = node.ask("fix", node="a")
    assert (fixed["skipped"], fixed["failing"], fixed["undoing"]) == ([], None, True) and "no room" in fixed["reason"]
    (node.directory / "fails").unlink()
    wait_until(lambda: not node.ask("status")["own"]["begun"], 20, "the undoing")
    wait_until(lambda: not node.ask("status")["nodes"][0]["undoing"], 20, "that it is shown no more")
    assert node.ran[:2] == ["0:1", "0:2"] and set(node.ran[2:]) == {"1:1"}
    found = node.ask("status")
    assert found["nodes"][0]["reason"] is None
    assert [each["tnx_id"] for each in found["calls"]] == [1] and found["own"]["begun"] is None
    assert found["in_force"]["hook"]["h"] == {"arg": ["1"]}


class FullDisk:
    """Writes of one of the files fail while ``full`` is set; ``failed`` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.full = threading.Event()
        self.failed = 0
        self._write, self._name = KeptFile.write, name
        monkeypatch.setattr(KeptFile, "write", lambda file, content: self.write(file, content))

    def write(self, file: Any, content: Any) -> None:
        if self.full.is_set() and file.path.name == self._name:
            self.failed += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write(file, content)


def test_disk_full_when_an_intent_is_written(node: CallsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """No action runs before its intent is durable; the node goes on, and so does the call when there is room."""
    disk = FullDisk(monkeypatch, "calls.json")
    disk.full.set()
    answer = node.make("hook", name="h", arg=["1"], timeout=0.3)
    assert answer["result"] == "unknown" and disk.failed and not node.ran
    assert node.ask("status")["calls"] == []
    disk.full.clear()
    wait_until(lambda: [each["result"] for each in node.ask("list")] == ["done"], 10, "the call")
    assert node.ran == ["0:1"] and node.ask("inspect", call=answer["id"])["tnx_id"] == 1


def test_disk_full_when_it_is_kept_what_is_in_force(node: CallsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the action has failed, and is undone: also that is kept only when there is room."""
    disk = FullDisk(monkeypatch, "actions.json")
    disk.full.set()
    asked: list[Any] = []
    thread = threading.Thread(target=lambda: asked.append(node.make("hook", name="h", arg=["1"])))
    thread.start()
    wait_until(lambda: disk.failed >= 2, 10, "the undoing")
    disk.full.clear()
    thread.join(20)
    assert asked[0]["result"] == "not made" and "make room" in asked[0]["reason"]
    assert node.ran[0] == "0:1" and set(node.ran[1:]) == {"1:"} and node.ask("list") == []


def test_aborted_call_overrules_the_nodes_file(node: CallsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """An enemy found it: what is undone was kept as in force, and counted for more than the file ever after."""
    kept = KeptFile.write
    failing = [OSError(errno.ENOSPC, "No space left on device")]

    def write(self: KeptFile[Any], content: Any) -> None:
        if self.path.name == "actions.json" and failing:
            raise failing.pop()
        kept(self, content)

    monkeypatch.setattr(KeptFile, "write", write)
    assert node.make("log_level", level="error")["result"] == "not made"
    assert node.ask("status")["in_force"] == {}
    assert (node.directory / "actions.json").read_bytes().count(b"log_level") == 0
    assert node.make("log_level", level="error")["result"] == "done"
    failing.append(OSError(errno.ENOSPC, "No space left on device"))
    assert node.make("log_level", level="debug")["result"] == "not made"
    assert node.ask("status")["in_force"] == {"log_level": {"": {"level": "error"}}}, "what a call has set is set again"


def test_a_hanging_action_holds_nothing_else_up(node: CallsNode) -> None:
    """Queues are declared meanwhile, and what waits behind it is answered in time."""
    (node.directory / "hook").write_text("#!/bin/sh\nexec sleep 1000\n")
    answer = node.make("hook", name="h", timeout=0.3)
    assert answer["result"] == "unknown"
    assert node.ask("status")["own"]["running"] == "hook h"
    second = node.make("log_level", level="info", timeout=0.3)
    assert second["result"] == "not made" and "the time was up" in second["reason"]


def test_stopped_in_mid_action(tmp_path: Path) -> None:
    """It is undone at the next start: nothing of it was recorded."""
    first = running(CallsNode(tmp_path / "a"))
    node = next(first)
    assert node.make("hook", name="h", arg=["1"])["result"] == "done"
    hook = (node.directory / "hook").read_text()
    (node.directory / "hook").write_text(hook + "exec sleep 1000\n")
    assert node.make("hook", name="h", arg=["2"], timeout=0.3)["result"] == "unknown"
    list(first)
    assert node.ran == ["0:1", "0:2"]
    (node.directory / "hook").write_text(hook)
    second = again(node)
    node = next(second)
    wait_until(lambda: node.ask("status")["own"]["begun"] is None, 10, "the undoing")
    assert node.ran == ["0:1", "0:2", "1:1"] and len(node.ask("list")) == 1
    list(second)


def test_it_has_succeeded_and_its_report_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``initiator_dies_between_action_and_record``, in the shell: the node ends before it hears of its success."""
    first = running(CallsNode(tmp_path / "a"))
    node = next(first)
    lost: list[Any] = []
    monkeypatch.setattr(node.surroundings.answers, "action_ran", lambda effect, error: lost.append(error))
    assert node.make("hook", name="h", arg=["1"], timeout=0.5)["result"] == "unknown"
    wait_until(lambda: lost == [None], 10, "its success")
    list(first)
    second = again(node)
    node = next(second)
    wait_until(lambda: node.ask("status")["own"]["begun"] is None, 10, "the undoing")
    assert node.ran == ["0:1", "1:"] and node.ask("list") == []
    assert node.ask("status")["in_force"] == {}
    list(second)


def test_a_cursor_that_was_not_kept_runs_a_call_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between an action and its cursor: actions are idempotent for this."""
    first = running(CallsNode(tmp_path / "a"))
    node = next(first)
    assert node.make("hook", name="h", arg=["1"])["result"] == "done"
    list(first)
    (node.directory / "calls.json").unlink()
    second = again(node)
    node = next(second)
    wait_until(lambda: node.ask("status")["own"]["cursor"] == 1, 10, "the cursor")
    assert node.ran == ["0:1", "0:1"]
    list(second)


def test_damaged_files_are_told_at_the_start(tmp_path: Path) -> None:
    first = running(CallsNode(tmp_path / "a"))
    node = next(first)
    assert node.make("log_level", level="error")["result"] == "done"
    list(first)
    for name in ("calls.json", "actions.json"):
        path = node.directory / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        with pytest.raises(StoreDamaged, match=f"{name} is damaged.*move it away: this node then"):
            CallsNode(node.directory)
        path.write_bytes(whole)


def test_what_is_said_of_a_failure_is_said_once(node: CallsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails once a second, for as long as it takes. That the undoing fails as well is said, too, also where it gives
    the same reason: an operator has to mend it."""
    said: list[Any] = []
    monkeypatch.setattr(surroundings, "tell", lambda log, level, event: said.append(event))
    (node.directory / "fails").write_text("no room")
    assert node.make("hook", name="h", arg=["1"], timeout=0.2)["result"] in ("unknown", "not made")
    wait_until(lambda: len(node.ran) >= 3, 10, "undoings that fail")
    failed = [event for event in said if isinstance(event, ActionNotRun)]
    assert [event.undo for event in failed] == [False, True] and len({event.reason for event in failed}) == 1
    assert "no room" in failed[0].reason
