"""Carrying a plan out, ended at every crash point in turn: the next run finishes the same plan."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker_plugin.cli.recovery.recovering import read_record
from broker_plugin.coordination.address import in_file
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from broker_plugin.coordination.sqlite_file import SqliteFile
from ha.membership.record import CoordinationError, MemoryCoordination, Record, Snapshot
from recovery.planner import apply
from recovery.planner.apply import (
    JOURNAL,
    ClusterPaths,
    Journal,
    PlanProgress,
    carry_out,
    finished,
    no_node_runs,
    unfinished,
)
from recovery.planner.facts import Evidence, PromotedContents, RecordState, StoreCondition
from recovery.planner.lease import found_in
from recovery.planner.plan import SetAside, SetRecordAside, make_plan
from recovery.planner.site import look
from recovery.store import aside
from recovery.store.crash_points import CRASH_POINTS
from recovery.store.files import Files
from recovery.store.lmdb_state import LmdbState
from recovery.store.segment import segment_firsts, segment_path
from tests.recovery.planner.stores import beginning, make_store
from tests.support.logs import Posts, open_store
from txobserver.ids import Member
from txobserver.ports.store import StoreError

POINTS = [point for point in CRASH_POINTS if point.startswith("recover.")]
NODES = frozenset("ab")


class Killed(BaseException):
    """Nothing more is done."""


@pytest.fixture
def places(tmp_path: Path) -> ClusterPaths:
    """Of a cluster whose node a is damaged in the middle of its log, and whose record is damaged, too."""
    for node in "ab":
        make_store(tmp_path / node, [(1, beginning(8))], 3)
    log = tmp_path / "a" / "log"
    path = segment_path(log, segment_firsts(log)[-2])
    data = bytearray(path.read_bytes())
    data[data.index(b"TXHA") + 60] ^= 1
    path.write_bytes(data)
    (tmp_path / "coordination.sqlite").write_bytes(b"SQLite, once")
    return ClusterPaths(
        {node: tmp_path / node for node in NODES},
        "cluster",
        in_file(tmp_path / "coordination.sqlite"),
    )


def record_of(places: ClusterPaths) -> Path:
    """Its file."""
    assert isinstance(places.record, SqliteFile)
    return places.record.path


def journal(places: ClusterPaths) -> Journal:
    """The plan for what is there now."""
    found = found_in(read_record(places.record, "cluster"))
    site, _ = look("cluster", places.directories, found, NODES)
    plan = make_plan(site, PromotedContents(), (), (), Evidence())
    return Journal(plan.actions, {"nothing_acknowledged_is_lost": plan.choice.sure, "branches": []})


def tree(directory: Path) -> dict[str, bytes]:
    """Everything but the coordination file, whose bytes say nothing by themselves."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "coordination.sqlite"
    }


def ended(monkeypatch: pytest.MonkeyPatch, point: str, passing: int) -> None:
    left = passing

    def reached(name: str) -> None:
        nonlocal left
        left -= name == point
        if not left:
            raise Killed

    monkeypatch.setattr(apply, "crash_point", reached)
    monkeypatch.setattr(aside, "crash_point", reached)


def passings() -> Iterator[tuple[str, int]]:
    counts = {"recover.plan-written": 1, "recover.part-set-aside": 3, "recover.action-done": 3}
    assert counts.keys() == set(POINTS)
    for point in POINTS:
        for passing in range(1, counts[point] + 1):
            yield point, passing


@pytest.mark.parametrize(("point", "passing"), list(passings()))
def test_killed_there_and_run_again(
    places: ClusterPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str, passing: int
) -> None:
    whole = Path(shutil.copytree(tmp_path, tmp_path.with_name(tmp_path.name + "-whole")))
    undisturbed = ClusterPaths(
        {node: whole / node for node in NODES}, "cluster", in_file(whole / record_of(places).name)
    )
    planned = journal(places)
    carry_out(journal(undisturbed), undisturbed)
    ended(monkeypatch, point, passing)
    with pytest.raises(Killed):
        carry_out(planned, places)
    if point == "recover.part-set-aside" and passing < 3:
        with pytest.raises(StoreError):
            open_store(tmp_path / "a", Posts(), node="a")  # what is left is nothing that a node would start with
    for module in (apply, aside):
        monkeypatch.setattr(module, "crash_point", lambda name: None)
    left = unfinished(places)
    assert left is not None and (left.actions, left.report) == (planned.actions, planned.report)
    assert carry_out(left, places) == tmp_path / "recovery-1.json" and unfinished(places) is None
    there = {name: data for name, data in tree(tmp_path).items() if not name.startswith("recovery-")}
    assert there == {name: data for name, data in tree(whole).items() if not name.startswith("recovery-")}
    assert places.open_record().read() == undisturbed.open_record().read()
    assert not journal(places).actions, "there is nothing left to do"
    assert finished(places) == [msgspec.structs.replace(planned, progress=PlanProgress.WRITTEN)]


def test_the_plan_is_on_the_disk_before_its_first_action(
    places: ClusterPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whole under its name, or not there: half of one would be in the way of every other."""
    steps: list[object] = []
    fsync, there = os.fsync, tmp_path / JOURNAL

    def synced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append((path.name, 0 if path.is_dir() else path.stat().st_size, there.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    ended(monkeypatch, "recover.plan-written", 1)
    with pytest.raises(Killed):
        carry_out(journal(places), places)
    assert steps == [(JOURNAL + ".new", there.stat().st_size, False), (tmp_path.name, 0, True)]
    for module in (apply, aside):
        monkeypatch.setattr(module, "crash_point", lambda name: None)
    carry_out(journal(places), places)
    assert steps[-1] == (tmp_path.name, 0, False), "and what is told to be done is not found undone"


def test_what_was_set_aside_is_the_store_as_it_was(places: ClusterPaths, tmp_path: Path) -> None:
    before = {name: data for name, data in tree(tmp_path / "a").items() if name != "lock"}
    carry_out(journal(places), places)
    assert tree(tmp_path / "a" / "set-aside-1") == before
    assert (tmp_path / "coordination.sqlite.set-aside-1").read_bytes() == b"SQLite, once"
    store = open_store(tmp_path / "a", Posts(), node="a")
    assert store.tail.sequence == 0, "the node can start, with a new store"
    store.close()


def test_a_second_damage_gets_a_place_of_its_own(places: ClusterPaths, tmp_path: Path) -> None:
    carry_out(journal(places), places)
    make_store(tmp_path / "a", [(1, beginning(3))], 2)
    shutil.rmtree(tmp_path / "a" / "state")
    carry_out(journal(places), places)
    assert sorted(path.name for path in (tmp_path / "a" / "set-aside-2").iterdir()) == ["identity.json", "log"]
    assert sorted(path.name for path in tmp_path.glob("recovery-*")) == ["recovery-1.json", "recovery-2.json"]


def test_a_store_that_has_been_replaced_is_left_alone(places: ClusterPaths, tmp_path: Path) -> None:
    planned = journal(places)
    for part in ("log", "state"):
        shutil.rmtree(tmp_path / "a" / part)
    (tmp_path / "a" / "identity.json").unlink()
    make_store(tmp_path / "a", [(1, beginning(3))], 2, incarnation="another")
    carry_out(planned, places)
    found, _ = look("cluster", places.directories, found_in(read_record(places.record, "cluster")), NODES)
    assert {store.condition for store in found.stores} == {StoreCondition.WHOLE}


def test_a_store_that_replaces_one_of_which_nothing_could_be_read_is_left_alone(
    places: ClusterPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run that carried the plan out was killed behind its last action, and the node was started before another went
    on: by then its new store may alone hold what was acknowledged."""
    (tmp_path / "a" / "identity.json").write_text("{")
    shutil.rmtree(tmp_path / "a" / "log")
    planned = journal(places)
    assert [each for each in planned.actions if isinstance(each, SetAside) and not each.incarnation]
    ended(monkeypatch, "recover.action-done", len(planned.actions))
    with pytest.raises(Killed):
        carry_out(planned, places)
    for module in (apply, aside):
        monkeypatch.setattr(module, "crash_point", lambda name: None)
    make_store(tmp_path / "a", [(1, beginning(3))], 2, incarnation="another")
    before = tree(tmp_path / "a")
    left = unfinished(places)
    assert left is not None and (left.actions, left.report) == (planned.actions, planned.report)
    carry_out(left, places)
    assert tree(tmp_path / "a") == before


class Damaged(MemoryCoordination):
    """A file that cannot be read, with a journal beside it that was not rolled back."""

    def read(self) -> Record | None:
        raise CoordinationError("damaged")

    def snapshot(self) -> Snapshot:
        return Snapshot(0, None, "damaged", b"")

    def close(self) -> None:
        """Nothing is open."""


def test_the_journal_of_a_damaged_record_goes_before_it(
    places: ClusterPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SQLite would roll it back into the record that is written in that place, also if we are killed in between."""
    monkeypatch.setattr(SqliteFile, "open", lambda *words, **options: Damaged())
    left = tmp_path / "coordination.sqlite-journal"
    left.write_bytes(b"pages of a file that is gone")
    planned, rename = Journal((SetRecordAside("damaged"),), {}), Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path == record_of(places):
            assert not left.exists()
            raise Killed
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(Killed):
        carry_out(planned, places)
    monkeypatch.setattr(Path, "rename", rename)
    carry_out(planned, places)
    aside = tmp_path / "coordination.sqlite.set-aside-1"
    assert not left.exists() and not record_of(places).exists() and aside.read_bytes() == b"SQLite, once"
    assert aside.with_name(aside.name + "-journal").read_bytes() == b"pages of a file that is gone"


class Silent(Damaged):
    """A store that gives no answer for a while."""

    def snapshot(self) -> Snapshot:
        raise CoordinationError("no answer")


def test_a_record_that_cannot_be_looked_at_is_not_set_aside(
    places: ClusterPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the one that this plan has written before it was cut short."""
    monkeypatch.setattr(SqliteFile, "open", lambda *words, **options: Silent())
    with pytest.raises(StoreError, match="the coordination record cannot be written: no answer"):
        carry_out(Journal((SetRecordAside("damaged"),), {}), places)
    assert record_of(places).read_bytes() == b"SQLite, once"


def test_a_record_that_has_gone_on_is_left_alone(places: ClusterPaths) -> None:
    planned = journal(places)
    record_of(places).unlink()
    store = places.open_record()
    later = store.compare_and_set(0, Record("cluster", 1, 9999, Member("b", "x"), (Member("b", "x"),)))
    store.close()
    before = tree(places.directories["a"])
    with pytest.raises(StoreError, match="run `txha recover` again for a new plan"):
        carry_out(planned, places)
    assert places.open_record().read() == later
    assert tree(places.directories["a"]) == before, "nor is anything else done that was planned for another record"


def test_a_store_that_was_restored_is_left_alone(
    places: ClusterPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run that carried the plan out was killed, and the damaged file was put back; the store is as good as any."""
    log = tmp_path / "a" / "log"
    path = segment_path(log, segment_firsts(log)[-2])
    planned = journal(places)
    ended(monkeypatch, "recover.action-done", 2)
    with pytest.raises(Killed):
        carry_out(planned, places)
    for module in (apply, aside):
        monkeypatch.setattr(module, "crash_point", lambda name: None)
    data = bytearray(path.read_bytes())
    data[data.index(b"TXHA") + 60] ^= 1
    path.write_bytes(data)
    before = tree(tmp_path / "a")
    carry_out(planned, places)
    assert tree(tmp_path / "a") == before


def test_a_record_that_somebody_else_writes_meanwhile_is_not_overwritten(places: ClusterPaths) -> None:
    planned = journal(places)
    record_of(places).unlink()
    store = places.open_record()
    theirs = store.compare_and_set(0, Record("cluster", 1, 1, Member("b", "x"), (Member("b", "x"),)))
    with pytest.raises(StoreError, match="cannot be written: the coordination record is at version 1"):
        carry_out(planned, places)
    assert store.read() == theirs
    store.close()


def test_reading_the_record_leaves_its_file_as_it_is(places: ClusterPaths) -> None:
    snapshot = read_record(places.record, "cluster")
    record, state, why = found_in(snapshot)
    assert record is None and state is RecordState.DAMAGED and str(places.record) in why
    assert record_of(places).read_bytes() == b"SQLite, once" == snapshot.content
    none = record_of(places).with_name("none")
    assert found_in(read_record(in_file(none), "cluster")) == (None, RecordState.GONE, "")
    assert not none.exists()


def test_a_plan_that_cannot_be_read_is_said(places: ClusterPaths, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("{")
    with pytest.raises(StoreError, match="move it away to make a new plan"):
        unfinished(places)


@pytest.mark.parametrize("change", [False, True])
def test_whoever_runs_is_named_and_nobody_starts_meanwhile(places: ClusterPaths, tmp_path: Path, change: bool) -> None:
    store = open_store(tmp_path / "b", Posts(), node="b")
    with pytest.raises(StoreError, match="b is running"), no_node_runs(places.directories, change):
        raise AssertionError
    store.close()
    with no_node_runs(places.directories, change), pytest.raises(StoreError, match="in use by another process"):
        open_store(tmp_path / "b", Posts(), node="b")
    open_store(tmp_path / "b", Posts(), node="b").close()


@pytest.mark.parametrize("there", [False, True])
def test_a_node_that_has_no_store_does_not_get_one_meanwhile(places: ClusterPaths, tmp_path: Path, there: bool) -> None:
    """And a run that only looks makes nothing."""
    directories = {**places.directories, "c": tmp_path / "c"}
    if there:
        (tmp_path / "c").mkdir()
    with no_node_runs(directories, change=False):
        assert list((tmp_path / "c").glob("*")) == [] and (tmp_path / "c").exists() == there
    with no_node_runs(directories, change=True), pytest.raises(StoreError, match="in use by another process"):
        open_store(tmp_path / "c", Posts(), node="c")
    open_store(tmp_path / "c", Posts(), node="c").close()


def test_record_written_from_what_is_not_on_the_disk(places: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed node had written and not synced was counted; a power cut took it from the only one that counted."""
    plan, done = journal(places), list[str]()
    rewrite, sync, confirm, store = Files.rewrite, Files.sync, LmdbState.confirm, SqliteCoordination.compare_and_set

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def look(*words: Any) -> Any:
            done.append(name)
            return call(*words)

        return look

    monkeypatch.setattr(Files, "rewrite", noted("rewrite", rewrite))
    monkeypatch.setattr(Files, "sync", noted("sync", sync))
    monkeypatch.setattr(LmdbState, "confirm", noted("confirm", confirm))
    monkeypatch.setattr(SqliteCoordination, "compare_and_set", noted("record", store))
    carry_out(plan, places)
    assert done[: done.index("record")] == ["rewrite", "sync", "confirm"]
