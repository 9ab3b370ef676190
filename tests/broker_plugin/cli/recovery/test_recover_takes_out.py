"""``txha recover --apply`` takes whom it sets aside out of the ready set, if another member of it is left."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from broker_plugin.cli.recovery.crashed import Given
from broker_plugin.cli.recovery.recovering import run
from broker_plugin.coordination.address import in_file
from recovery.planner import discarding
from tests.broker_plugin.cli.recovery.test_recover_again import (
    DONE,
    JOURNAL,
    NOTHING,
    PLANNED,
    STORE,
    WRITTEN,
    A,
    B,
    becomes,
    coordination,
    cut_short_and_restored,
    damage,
    directory,
    killed_at,
    parts,
    record_in,
    recover,
)
from txobserver.ids import Member
from txobserver.ports.store import StoreError

C = Member("c", "incarnation")
__all__ = ["directory"]


def test_recover_then_discard(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both are ready. a's store is set aside; then no operator may give b's up, which is the last one."""
    before = becomes(directory, ready=(A, B))
    damage(directory)
    found = recover(directory, capsys)
    record = directory / "coordination.sqlite"
    assert found["by_itself"] and found["actions"][0] == f"write {record}: a out of the ready set, nothing else"
    assert record_in(directory) == msgspec.structs.replace(before, version=before.version + 1, ready=(B,))
    assert "set-aside-1" in parts(directory, "a")
    with coordination(directory) as store, pytest.raises(StoreError, match="b is the only member of the ready set"):
        discarding.look(directory / "b", "cluster", "b", store)


def test_a_store_that_does_not_say_whose_it_is_leaves_as_any_of_its_node(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    becomes(directory, ready=(A, B))
    (directory / "a" / "identity.json").write_text("{")
    for segment in (directory / "a" / "log").iterdir():
        segment.write_bytes(b"")
    recover(directory, capsys)
    made = record_in(directory)
    assert made is not None and made.ready == (B,) and "set-aside-1" in parts(directory, "a")


def test_one_that_is_not_ready_leaves_the_record_as_it_is(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = becomes(directory, ready=(B,))
    damage(directory)
    assert len(recover(directory, capsys)["actions"]) == 1
    assert record_in(directory) == before and "set-aside-1" in parts(directory, "a")


@pytest.mark.parametrize("point", [PLANNED, WRITTEN])
def test_killed_before_or_behind_the_record_it_is_finished(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], point: str
) -> None:
    becomes(directory, ready=(A, B))
    damage(directory)
    killed_at(point, directory, monkeypatch, NOTHING)
    made = record_in(directory)
    assert made is not None and made.ready == ((A, B) if point == PLANNED else (B,)) and parts(directory, "a") == STORE
    found = recover(directory, capsys)
    assert found["applied"] == str(directory / DONE) and "overtaken" not in found
    made = record_in(directory)
    assert made is not None and made.ready == (B,) and "set-aside-1" in parts(directory, "a")


def test_taken_out_and_restored_it_is_not_set_aside(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is lost by that: a node that comes back whole and is not ready follows."""
    becomes(directory, ready=(A, B))
    cut_short_and_restored(WRITTEN, directory, monkeypatch, NOTHING)
    found = recover(directory, capsys)
    assert "the store of a is not as it was found" in found["overtaken"] and found["promote"] == "b"
    assert parts(directory, "a") == STORE and not (directory / JOURNAL).exists()


def test_the_directories_of_those_who_are_set_aside_and_of_who_is_promoted_are_needed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record that is written lists another one as well, that need not be there."""
    before = becomes(directory, ready=(A, B, C))
    damage(directory)
    record = directory / "coordination.sqlite"
    killed_at(PLANNED, directory, monkeypatch, NOTHING)
    with pytest.raises(StoreError, match="it needs the directory of b"):
        run(Given([directory / "a", directory / "c"], in_file(record)), True, NOTHING, as_json=True)
    assert record_in(directory) == before and parts(directory, "a") == STORE
    capsys.readouterr()
    run(Given([directory / "a", directory / "b"], in_file(record)), True, NOTHING, as_json=True)
    assert "overtaken" not in json.loads(capsys.readouterr().out)
    assert record_in(directory) == msgspec.structs.replace(before, version=before.version + 1, ready=(B, C))
