"""``txha recover`` over a store that ``txha rebuild`` made: of what the one before it held, it is no witness."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.recovery.crashed import Given
from broker_plugin.cli.recovery.rebuilding import run as rebuild
from broker_plugin.cli.recovery.recovering import Accepted, run
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from recovery.store.identity import adopt, read_identity
from tests.recovery.planner.stores import beginning, make_store
from tests.support.logs import Posts, open_store
from txobserver.events import GenerationStart
from txobserver.frames import encode_frame
from txobserver.ids import Position
from txobserver.ports.store import StoreError

SHARED, ALONE = 5, 9
"""Events that both had acknowledged; and what b had, which acknowledged the rest alone"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The record is lost, and the disk of b, which was ready alone; b has a new store, made from a's log."""
    nodes = []
    for name, count in (("a", SHARED), ("b", ALONE)):
        make_store(tmp_path / name, [(1, beginning(count))], 3)
        nodes.append({"name": name, "pid": None, "amqp_port": 5701, "dir": str(tmp_path / name)})
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))
    shutil.rmtree(tmp_path / "b")
    identity = read_identity(tmp_path / "a")
    assert identity is not None
    adopt(tmp_path / "a", identity, "0123456789abcdef" * 2)
    rebuild(tmp_path / "b", tmp_path / "a", None, None, "b", None, 100_000, 86_400.0, True)
    return tmp_path


def recover(directory: Path, capsys: pytest.CaptureFixture[str], *accepted: str) -> dict[str, Any]:
    capsys.readouterr()
    run(Given([directory]), True, Accepted(frozenset(accepted)), as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def is_given_an_event(directory: Path) -> None:
    """By a primary of generation 2, which had all that was acknowledged."""
    posts = Posts()
    store = open_store(directory, posts, node=directory.name)
    list(store.suffix())
    store.append(encode_frame(2, store.tail.sequence + 1, [GenerationStart(2, "a", ["a"])], 1000), posts.done)
    posts.wait()
    store.close()


def test_a_rebuilt_store_is_no_witness_of_the_one_before_it(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = recover(directory, capsys)
    assert (found["nothing_acknowledged_is_lost"], found["missing"]) == (False, ["b"])
    assert "--accept-missing b" in found["refused"] and not (directory / "coordination.sqlite").exists()
    assert any("the store of b was made by `txha rebuild`" in reason for reason in found["reasons"])
    assert recover(directory, capsys, "b")["applied"]
    store = SqliteCoordination(directory / "coordination.sqlite", "cluster")
    made = store.read()
    store.close()
    assert made is not None and made.loss_accepted == made.generation


def test_a_rebuilt_store_that_has_met_a_primary_is_as_any(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_given_an_event(directory / "b")
    found = recover(directory, capsys)
    assert found["promote"] == "b" and found["nothing_acknowledged_is_lost"] and found["missing"] == []


def test_a_rebuilt_store_says_so_under_a_checksum(directory: Path) -> None:
    """No flipped bit makes it one like any other."""
    path = directory / "b" / "identity.json"
    identity, data = read_identity(directory / "b"), path.read_bytes()
    assert identity is not None and identity.rebuilt == Position(1, SHARED + 2)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(StoreError):
            read_identity(directory / "b")


def test_a_version_that_does_not_know_of_it_passes_over_it(directory: Path) -> None:
    """It reads the fields that it knows, and its checksum is over those."""
    path = directory / "b" / "identity.json"
    fields = json.loads(path.read_bytes())
    known = {name: fields[name] for name in ("format", "cluster", "node", "incarnation", "check", "cluster_id")}
    path.write_text(json.dumps(known))
    identity = read_identity(directory / "b")
    assert identity is not None and identity.rebuilt is None and identity.node == "b"
