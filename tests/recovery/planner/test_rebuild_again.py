"""``txha rebuild`` over what one that was killed has left: it goes on with that very store, or says what is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ha.membership.record import MemoryCoordination, Record
from recovery.planner import discarding
from recovery.planner import rebuild as module
from recovery.planner.rebuild import Rebuilt, rebuild
from recovery.planner.rebuild_note import NOTE, PARTS
from recovery.store.aside import REBUILDING
from recovery.store.identity import Identity, read_identity
from tests.recovery.planner.stores import beginning, make_store
from tests.recovery.planner.test_rebuild import (
    IDENTITY,
    LAST,
    TAIL,
    Killed,
    archived,
    dies,
    loaded,
    made,
    opened,
    source,
)
from txobserver.events import GenerationStart
from txobserver.frames import encode_frame
from txobserver.ids import Member, Position
from txobserver.ports.store import StoreError

__all__ = ["source"]
MOVED = [1, 2, 3]
"""How many parts were moved when it was killed"""
OTHERS: dict[str, Callable[[Path, Path], Rebuilt]] = {
    "another cluster": lambda into, log: rebuild(into, replace(IDENTITY, cluster_id="2" * 32), (), log, 20),
    "another node": lambda into, log: rebuild(into, replace(IDENTITY, node="other"), (), log, 20),
    "another log": lambda into, log: rebuild(into, IDENTITY, (), shutil.copytree(log, into.parent / "b"), 20),
    "with an archive": lambda into, log: rebuild(into, IDENTITY, archived(log, 9), log, 20, archive_name="/lake"),
}


def killed(into: Path, source: Path, monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    """A run, when it had moved so many parts."""
    with monkeypatch.context() as patched:
        dies(patched, "crash_point", moved) if moved else dies(patched, "_move", 1)
        with pytest.raises(Killed):
            made(into, (), source, 20)
    assert sorted(part for part in PARTS if (into / part).exists()) == sorted(PARTS[:moved])


def discarded(into: Path) -> Path:
    """``txha discard``; returns where the store is then. Of the cluster, another member is ready."""
    coordination = MemoryCoordination()
    ready = Member("a", "incarnation")
    coordination.compare_and_set(0, Record("cluster", 1, 1, ready, (ready,)))
    found = discarding.look(into, "cluster", "new", coordination)
    return discarding.discard(into, "cluster", found, coordination)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("lock", "lock.mdb")
    }


def is_as_made(into: Path, found: Rebuilt) -> None:
    """A node starts with it, and it holds what was asked for."""
    assert (found.applied, found.tail) == (Position(1, 20), TAIL)
    store = opened(into)
    assert store.tail == Position(1, 20) and len(list(store.suffix())) == LAST - 20
    store.close()
    assert not (into / REBUILDING).exists()


@pytest.mark.parametrize("moved", MOVED)
def test_discarded_and_started_between_two_runs(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """The store that the node serves from is not the one that was being made: no part of it is replaced."""
    into = tmp_path / "new"
    killed(into, source, monkeypatch, moved)
    discarded(into)
    make_store(into, [(1, beginning(30))], 12, incarnation="serving")
    before = files(into)
    with pytest.raises(StoreError, match="holds a store already"):
        made(into, (), source, 20)
    assert files(into) == before


@pytest.mark.parametrize("moved", MOVED)
def test_moved_away_and_started_between_two_runs(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """The same where an operator moved the parts away by hand, and left `rebuilding/`."""
    into = tmp_path / "new"
    killed(into, source, monkeypatch, moved)
    for part in PARTS[:moved]:
        (into / part).rename(tmp_path / part)
    make_store(into, [(1, beginning(30))], 12, incarnation="serving")
    before = files(into)
    with pytest.raises(StoreError, match="holds a store already"):
        made(into, (), source, 20)
    assert files(into) == before


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("moved", MOVED)
def test_discarded_between_two_runs(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, moved: int, by_hand: bool
) -> None:
    """The next run begins anew: a store without its log, or an identity alone, is none."""
    into = tmp_path / "new"
    killed(into, source, monkeypatch, moved)
    if by_hand:
        for part in PARTS[:moved]:
            (into / part).rename(tmp_path / part)
    else:
        aside = discarded(into)
        where = [(aside / part).exists() + (aside / REBUILDING / part).exists() for part in (*PARTS, NOTE)]
        assert where == [1, 1, 1, 1] and not (into / REBUILDING).exists(), "all of it is in one place"
    is_as_made(into, made(into, (), source, 20))


def test_a_node_has_run_with_the_store_before_the_next_run(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is the node's store, and not what this run has made."""
    into = tmp_path / "new"
    killed(into, source, monkeypatch, 3)
    store, posts = opened(into), []
    list(store.suffix())
    frame = encode_frame(3, LAST + 1, [GenerationStart(3, "a", ["a"])], 1000)
    store.append(frame, posts.append)
    store.close()
    before = files(into)
    with pytest.raises(StoreError, match="holds a store already"):
        made(into, (), source, 20)
    assert files(into) == before


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("moved", [0, *MOVED])
def test_another_store_is_asked_for_than_the_one_that_was_being_made(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, moved: int, other: str
) -> None:
    """While nothing was moved, it is the other one that is made; a store of both there is not."""
    into = tmp_path / "new"
    killed(into, source, monkeypatch, moved)
    before = files(into)
    if moved:
        with pytest.raises(StoreError, match=f"other arguments .the store of node new .* from the log of {source}"):
            OTHERS[other](into, source)
        assert files(into) == before
        is_as_made(into, made(into, (), source, 20))
        return
    OTHERS[other](into, source)
    assert not (into / REBUILDING).exists()
    identity = read_identity(into)
    assert identity is not None
    wanted = {"another cluster": ("new", "2" * 32), "another node": ("other", "")}.get(other, ("new", ""))
    assert (identity.node, identity.cluster_id) == wanted


def test_what_is_made_again_is_made_of_what_the_log_holds_now(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "new"
    killed(into, source, monkeypatch, 0)
    assert made(into, (), source).applied == TAIL
    assert loaded(into) == loaded(source, "a")


def without_note(into: Path, tmp_path: Path) -> None:
    (into / REBUILDING / NOTE).unlink()


def with_a_damaged_note(into: Path, tmp_path: Path) -> None:
    (into / REBUILDING / NOTE).write_bytes(b"{")


def with_another_log(into: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "new", [(1, beginning(30))], 12, incarnation="another")
    shutil.rmtree(into / "log")
    (tmp_path / "new" / "log").rename(into / "log")


def with_another_identity(into: Path, tmp_path: Path) -> None:
    module.create_identity(into / REBUILDING, Identity(2, "cluster", "new", "another"))


def without_its_state(into: Path, tmp_path: Path) -> None:
    shutil.rmtree(into / REBUILDING / "state")


@pytest.mark.parametrize(
    "change", [without_note, with_a_damaged_note, with_another_log, with_another_identity, without_its_state]
)
def test_parts_that_are_not_of_one_store_are_not_put_together(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, Path], None]
) -> None:
    into = tmp_path / "into" / "new"
    into.parent.mkdir()
    killed(into, source, monkeypatch, 1)
    change(into, tmp_path)
    before = files(into)
    with pytest.raises(StoreError, match=r"holds a store already \(log\)"):
        made(into, (), source, 20)
    assert files(into) == before


@pytest.mark.parametrize(("moved", "passing"), [(moved, passing) for moved in MOVED for passing in range(1, moved + 1)])
def test_discard_is_killed_over_what_a_run_has_left(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, moved: int, passing: int
) -> None:
    """It goes on into the same directory, and no run makes a store of what has not been set aside yet."""
    into = tmp_path / "new"
    killed(into, source, monkeypatch, moved)
    points: list[str] = []

    def dies_at(point: str) -> None:
        points.append(point)
        if len(points) == passing:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("recovery.store.aside.crash_point", dies_at)
        with pytest.raises(Killed):
            discarded(into)
    with pytest.raises(StoreError, match="holds a store already"):
        made(into, (), source, 20)
    aside = discarded(into)
    assert [path.name for path in into.glob("discarded-*")] == [aside.name]
    where = [(aside / part).exists() + (aside / REBUILDING / part).exists() for part in (*PARTS, NOTE)]
    assert where == [1, 1, 1, 1]
    is_as_made(into, made(into, (), source, 20))
