"""``txha recover`` over the stores of a cluster whose members were changed: what no file lists, and who was removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode

from broker_plugin.cli.recovery.crashed import Given
from broker_plugin.cli.recovery.recovering import Accepted, run
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.belonging import objection_to
from ha.membership.members import ClusterNode, Membership
from ha.membership.record import Record
from tests.recovery.planner.stores import beginning, make_store
from txobserver.actions import FLAG, MEMBERS_FLAG, RaiseFlag
from txobserver.calls import CallRecord, call_step
from txobserver.events import Event
from txobserver.ids import Member

NOTHING, DATA_LOSS = Accepted(), Accepted(unnamed=True)


def flag(name: str) -> Event:
    """It is raised."""
    step = call_step(FLAG, CallRecord(b"f" * 16, 1, name, encode(RaiseFlag()), "a", 7, ["a/incarnation"], 100))
    step.config_id = 2
    return step


def founded_alone(directory: Path, raised: str, checkpoint: int) -> Path:
    """The directory of a, whose file lists no peers; the record is lost."""
    make_store(directory / "a", [(1, [*beginning(3), flag(raised)])], checkpoint)
    record = directory / "coordination.sqlite"
    (directory / "a" / "node.toml").write_text(f'name = "a"\ncoordination = "{record}"\n')
    return directory / "a"


def recover(
    directory: Path, capsys: pytest.CaptureFixture[str], accepted: Accepted = NOTHING, apply: bool = False
) -> tuple[int, dict[str, Any]]:
    """Status and report of ``txha recover``."""
    capsys.readouterr()
    status = run(Given([directory]), apply, accepted, as_json=True)
    return status, json.loads(capsys.readouterr().out)


def record_in(directory: Path) -> Record | None:
    store = SqliteCoordination(directory / "coordination.sqlite", "cluster")
    found = store.read()
    store.close()
    return found


@pytest.mark.parametrize("checkpoint", [0, 6], ids=["in the log", "in the checkpoint"])
@pytest.mark.parametrize("cluster", [False, True], ids=["a node", "a cluster's directory"])
def test_grown_by_changes_of_the_members_and_the_record_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cluster: bool, checkpoint: int
) -> None:
    """a was founded alone; b was added, and acknowledged alone when a had died. Only the record told of b."""
    given = founded_alone(tmp_path, MEMBERS_FLAG, checkpoint)
    if cluster:
        nodes = [{"name": "a", "pid": None, "amqp_port": 5701, "dir": str(given)}]
        (given := tmp_path).joinpath("cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))
    status, found = recover(given, capsys)
    assert (status, found["promote"], found["nothing_acknowledged_is_lost"]) == (1, "a", False)
    assert any("the flag `members` is raised" in reason for reason in found["reasons"])
    status, found = recover(given, capsys, apply=True)
    assert status == 1 and "--accept-data-loss" in found["refused"] and record_in(tmp_path) is None
    status, found = recover(given, capsys, DATA_LOSS, apply=True)
    made = record_in(tmp_path)
    assert status == 1 and "refused" not in found and made is not None
    assert made.loss_accepted == made.generation > 1000


def test_another_flag_adds_no_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = recover(founded_alone(tmp_path, "calls", 0), capsys)
    assert (status, found["promote"], found["nothing_acknowledged_is_lost"]) == (0, "a", True)


def test_a_store_that_is_read_in_part_tells_of_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The state of one node is ruined; the log of another is behind the flag. All that the files list are there."""
    given = founded_alone(tmp_path, MEMBERS_FLAG, 0)
    make_store(tmp_path / "c", [(1, beginning(2))], 2)
    shutil.copy(given / "node.toml", tmp_path / "c")
    (given / "state" / "data.mdb").unlink()
    _, found = recover(tmp_path, capsys)
    assert found["promote"] == "c" and any("the flag `members` is raised" in reason for reason in found["reasons"])


def test_the_store_of_a_removed_node_is_taken_by_an_explicit_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """b was removed, then the disk of a was lost."""
    (a, b), record = (Member(name, "incarnation") for name in "ab"), tmp_path / "coordination.sqlite"
    make_store(tmp_path / "b", [(1, [*beginning(3), flag(MEMBERS_FLAG)])], 6)
    (tmp_path / "b" / "node.toml").write_text(f'name = "b"\ncoordination = "{record}"\n')
    membership = Membership(2, (ClusterNode("a", "h", 1, True, "incarnation"),), (b,))
    store = SqliteCoordination(record, "cluster", create=True)
    store.compare_and_set(0, Record("cluster", 1, 1, a, (a,), membership=membership))
    store.close()
    for accepted, word in ((NOTHING, "--accept-data-loss"), (DATA_LOSS, "--accept-missing a")):
        status, found = recover(tmp_path, capsys, accepted, apply=True)
        assert status == 1 and word in found["refused"]
        assert record_in(tmp_path) == Record("cluster", 1, 1, a, (a,), membership=membership)
    status, found = recover(tmp_path, capsys, Accepted(frozenset("a"), unnamed=True), apply=True)
    made = record_in(tmp_path)
    assert status == 1 and "refused" not in found and made is not None and made.ready == (b,)
    assert objection_to(made, b) is None
