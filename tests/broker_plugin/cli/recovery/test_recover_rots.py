"""``txha recover`` where a log is all that is left of a store, and where it has rotted behind the checkpoint."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.crashed import Given
from broker_plugin.cli.recovery.recover import recover
from broker_plugin.cli.recovery.recovering import Accepted, run
from recovery.planner.facts import StoreCondition
from recovery.planner.survey import survey
from recovery.store.segment import segment_firsts, segment_path
from tests.broker_plugin.cli.recovery.test_recover import ID, A, B, has_identity, record_says
from tests.recovery.planner.stores import beginning, make_store

EVENTS, CHECKPOINT = 40, 35


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two nodes with all events, both ready; their checkpoints stand near the ends of their logs."""
    nodes = []
    for name in ("a", "b"):
        make_store(tmp_path / name, [(1, beginning(EVENTS - 2))], CHECKPOINT)
        has_identity(tmp_path, name, ID)
        (tmp_path / name / "node.toml").write_text("")
        nodes.append({"name": name, "pid": None, "amqp_port": 5701, "dir": str(tmp_path / name)})
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))
    record_says(tmp_path, A, B)
    return tmp_path


def planned(
    directory: Path, capsys: pytest.CaptureFixture[str], deep: bool = False, *accepted: str
) -> tuple[int, dict[str, Any]]:
    status = run(Given([directory]), bool(accepted), Accepted(frozenset(accepted)), True, deep)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, found


def ruin(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name / "state" / "data.mdb").write_bytes(b"x")


def rot(directory: Path) -> int:
    """A flipped bit in the first segment; the first event of the next one."""
    firsts = segment_firsts(directory / "log")
    path = segment_path(directory / "log", firsts[0])
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    return firsts[1]


def test_a_rebuild_is_proposed_where_only_queue_states_are_ruined(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that no node can be promoted, and to restore a backup. The commands that it gives restore everything."""
    ruin(directory, "a", "b")
    status, found = planned(directory, capsys)
    assert status == 1 and found["promote"] is None
    assert found["doubts"] == [
        f"the log of b is whole, from the first event of all to 1.{EVENTS}, and only its state/ is ruined: make its "
        "store anew from that log (txha rebuild), and run `txha recover` again, which asks you to accept what a log "
        "that is cut off at its end would lack"
    ]
    commands = [shlex.split(step["command"]) for step in found["next"]]
    assert [words[0] for words in commands] == ["mv", "txha", "cp", "txha"]
    assert commands[1][-4:] == ["--cluster", "cluster", "--cluster-id", ID]
    for words in commands[:3]:
        command = [sys.executable, "-m", "broker_plugin.cli.main", *words[1:]] if words[0] == "txha" else words
        subprocess.run(command, check=True, capture_output=True)
    assert commands[3] == ["txha", "recover", str(directory)]
    status, found = planned(directory, capsys)
    assert found["promote"] == "b" and found["missing"] == ["a", "b"] and found["lost"] == []
    assert found["queues"]["q"]["messages"] == EVENTS - 2 and found["stores"][1]["position"] == f"1.{EVENTS}"
    assert planned(directory, capsys, False, "a", "b")[1]["applied"]


def test_a_rebuild_is_proposed_of_the_log_that_leads_furthest(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ruin(directory, "a", "b")
    firsts = segment_firsts(directory / "b" / "log")
    for first in firsts[-2:]:
        segment_path(directory / "b" / "log", first).unlink()
    assert "the log of a is whole" in planned(directory, capsys)[1]["doubts"][0]
    segment_path(directory / "a" / "log", 1).unlink()
    assert "the log of b is whole" in planned(directory, capsys)[1]["doubts"][0], "one that begins later is not"
    segment_path(directory / "b" / "log", 1).unlink()
    status, found = planned(directory, capsys)
    assert status == 1 and "restore one from a backup" in found["doubts"][0] and found["next"] == []


def test_the_plan_says_what_was_not_read_and_deep_reads_it(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped bit far behind the checkpoint: the node starts, so it was called whole without a word."""
    begin = rot(directory / "a")
    status, found = planned(directory, capsys)
    unread = {store["node"]: store["not_read"] for store in found["stores"]}
    assert status == 0 and found["doubts"] == []
    assert all(first == 1 and last < CHECKPOINT for first, last in unread.values())
    status, found = planned(directory, capsys, deep=True)
    assert status == 1 and found["promote"] == "b", "the greatest name of two that are alike"
    [said] = found["doubts"]
    assert said.startswith("a: ") and f"to {unread['a'][1]} of the log were to be read" in said
    assert [store["not_read"] for store in found["stores"]] == [None, None] and begin > 1
    assert [store["condition"] for store in found["stores"]] == ["whole", "whole"], "its node starts with it"


def test_a_table_says_what_was_not_read(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for deep in (False, True):
        assert run(Given([directory]), False, Accepted(), False, deep) == 0
        assert ("of a's log were not read: its checkpoint stands behind them" in capsys.readouterr().out) is not deep


def test_deep_is_for_a_plan(directory: Path) -> None:
    with pytest.raises(BadArgument, match="--deep is for a plan"):
        recover([directory], settle=True, deep=True)


def test_a_store_with_the_log_of_another_node_is_not_taken(directory: Path) -> None:
    (directory / "a" / "log").rename(directory / "log")
    (directory / "b" / "log").rename(directory / "a" / "log")
    (directory / "log").rename(directory / "b" / "log")
    for name, other in (("a", "b"), ("b", "a")):
        found = survey(name, directory / name, "cluster").facts
        assert found.condition is StoreCondition.FOREIGN and f"its log/ is that of node {other}" in found.why
    shutil.rmtree(directory / "a" / "log")
    assert survey("a", directory / "a", "cluster").facts.condition is not StoreCondition.FOREIGN
