"""What a store does to its state and its log, and in which order, its parts played by the test (``store``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recovery.store.files import Files
from recovery.store.lmdb_state import LmdbState
from recovery.store.log import Log
from recovery.store.segment import segment_firsts
from recovery.store.store import Store
from tests.support.invariants import unchecked
from tests.support.logs import describe, frame, open_log
from txobserver.ids import Member, Position
from txobserver.ports.store import Checkpoint, Meta, StoreDamaged, StoreError

AT = Position(2, 7)


class Part:
    """Says what is asked of it; returns nothing."""

    def __init__(self, name: str, said: list[Any]) -> None:
        self._name, self._said = name, said

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words: self._said.append((f"{self._name}.{name}", *words))


class Later:
    """Keeps jobs until the test does them."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None], done: Any) -> None:
        self.jobs.append(job)

    def work(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def a_store(begun: bool = True, resyncing: bool = False) -> tuple[Store, list[Any], Later]:
    said: list[Any] = []
    state: Any = Part("state", said)
    state.load, state.log_begun = lambda: SimpleNamespace(meta=Meta(AT, resyncing=resyncing)), begun
    log: Any = Part("log", said)
    jobs = Later()
    workers = jobs, jobs, jobs
    store = Store(Member("a", "1"), state, lambda applied: log, *workers, lambda: 44.0, lambda: said.append("closed"))
    return store, said, jobs


@pytest.mark.parametrize(
    ("begun", "resyncing", "steps"),
    [
        (True, False, [("state.confirm", True), ("log.recover", AT, True)]),
        (False, False, [("log.begin", AT), ("state.confirm", True), ("log.recover", AT, False)]),
        (True, True, [("state.confirm", True)]),
        (False, True, [("state.confirm", False)]),
    ],
)
def test_what_was_found_is_confirmed_when_its_log_has_begun(begun: bool, resyncing: bool, steps: list[Any]) -> None:
    """A store that is being overwritten has no log to begin, and what says so must be as durable."""
    store, said, _ = a_store(begun, resyncing)
    found = store.suffix()
    assert said == steps and (not resyncing or list(found) == [])


@pytest.mark.parametrize("resyncing", [True, False])
def test_the_log_of_a_store_that_is_being_overwritten_is_not_reclaimed(resyncing: bool) -> None:
    store, said, jobs = a_store()
    checkpoint = Checkpoint(Meta(AT, resyncing=resyncing), {}, [], [], [])
    store.checkpoint(checkpoint, lambda error: None)
    assert said == []
    jobs.work()
    assert said == [("state.write", checkpoint)] + [("log.reclaim", 7, 44.0)] * (not resyncing)


def test_what_waits_to_be_appended_is_written_at_once() -> None:
    store, said, jobs = a_store()
    frames = [frame(1), frame(4), frame(7)]
    for each in frames:
        store.append(each, lambda error: None)
    jobs.work()
    assert said == [("log.append", frames), ("log.append", []), ("log.append", [])]


@pytest.mark.parametrize("cut", ["truncate", "reset"])
def test_what_is_appended_behind_a_cut_is_written_behind_it(cut: str) -> None:
    """Else it would be written with what came before, and then cut off."""
    store, said, jobs = a_store()
    before, behind = frame(1), frame(4)
    store.append(before, lambda error: None)
    if cut == "truncate":
        store.truncate(3, AT, lambda error: None)
    else:
        store.reset(AT, lambda error: None)
    store.append(behind, lambda error: None)
    jobs.work()
    step = ("log.truncate", 3, AT) if cut == "truncate" else ("log.reset", AT)
    assert said == [("log.append", [before]), step, ("log.append", [behind])]
    store.close()
    assert said[3:] == ["closed", ("log.close",)]


def test_each_opening_is_another_transaction_of_the_state(tmp_path: Path) -> None:
    """Also where nothing has changed: what was found may never have been synced."""
    heads = []
    for begun in (False, False, True, True):
        state = LmdbState(tmp_path)
        assert state.log_begun == (len(heads) == 3)
        state.confirm(begun)
        state.close()
        heads.append((tmp_path / "data.mdb").read_bytes()[: 2 * 4096])
    assert all(one != other for one, other in itertools.combinations(heads, 2))


class Removals(Files):
    """Says what is removed, in order."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove(self, path: Path) -> None:
        if path.suffix == ".log":
            self.removed.append(path.name)
        super().remove(path)


def test_segments_are_removed_from_the_end_so_that_no_hole_is_left(tmp_path: Path) -> None:
    files = Removals()
    log, _ = open_log(tmp_path / "log", 300, files)
    for number in range(10):
        log.append([frame(1 + 3 * number)])
    there = sorted(path.name for path in (tmp_path / "log").iterdir() if path.suffix == ".log")
    log.truncate(1 + 3 * 5 - 1, Position(1, 15))
    assert files.removed == [name for name in reversed(there) if name > f"{16:020d}"] and len(files.removed) > 1
    left = [name for name in there if name not in files.removed]
    files.removed.clear()
    log.reset(Position(2, 40))
    assert files.removed == left[::-1] and segment_firsts(tmp_path / "log") == [41]


def test_segments_without_a_header_are_removed_from_the_end(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1)])
    log.close()
    for first in (4, 5):
        (tmp_path / "log" / f"{first:020d}.log").touch()
    files = Removals()
    log = Log(tmp_path / "log", describe, 1 << 20, Position(0, 0), files)
    assert [each.first for each in log.recover(Position(0, 0))] == [1]
    assert files.removed == [f"{first:020d}.log" for first in (5, 4)]


def test_generations_rise_through_the_whole_log(tmp_path: Path) -> None:
    """Each event is compared with all before it, not only with the checkpoint."""
    log, _ = open_log(tmp_path / "log")
    with unchecked():  # no log of ours holds that
        log.append([frame(1, generation=3), frame(4, generation=2)])
    log.close()
    with pytest.raises(StoreDamaged, match=r"holds 2.6 behind events of generation 3"):
        open_log(tmp_path / "log")


@pytest.mark.parametrize("last", [3, 4, 5])
def test_a_log_is_not_cut_before_it_begins(tmp_path: Path, last: int) -> None:
    """What is written then would stand in a segment that says it begins later."""
    log = Log(tmp_path, describe, 1 << 20, Position(1, 5))
    log.begin(Position(1, 5))
    assert list(log.recover(Position(1, 5))) == []
    log.append([frame(6)])
    if last < 5:
        with pytest.raises(StoreError, match=f"begins at 6 and cannot be cut after {last}"):
            log.truncate(last, Position(1, last))
        return
    log.truncate(5, Position(1, 5))
    log.append([frame(6, count=2)])
    assert log.tail == Position(1, 7) and [each.first for each in log.read(6, 1)] == [6]
    log.close()


def test_behind_a_frame_that_does_not_continue_the_log_nothing_is_taken(tmp_path: Path) -> None:
    """The caller has another log in mind."""
    log, _ = open_log(tmp_path / "log")
    for wrong in (frame(5), frame(1)):
        with pytest.raises(StoreError, match="frame 5 does not continue the log at 0"):
            log.append([wrong])
    log.close()
    assert open_log(tmp_path / "log")[1] == []
