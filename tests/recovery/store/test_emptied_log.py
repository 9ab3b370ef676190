"""A log that has begun always has a segment: an emptied ``log/`` is damage, and never a log that has not begun."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.planner.facts import StoreCondition
from recovery.planner.rebuild import rebuild
from recovery.planner.survey import survey
from recovery.store.identity import FORMAT_VERSION, Identity
from recovery.store.lmdb_state import LmdbState
from recovery.store.segment import segment_firsts, segment_path
from recovery.store.store import Store
from tests.recovery.planner.stores import beginning, make_store
from tests.recovery.store.test_store import meta_at
from tests.support.logs import Posts, frame, open_store
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged

SENTENCE = "holds no log, and there was one: what was acknowledged behind .* restore it or let the node rejoin"


class Opened:
    """A store that is open, and the reports of its threads."""

    def __init__(self, directory: Path) -> None:
        self.posts = Posts()
        self.store: Store = open_store(directory, self.posts)
        try:
            self.suffix = list(self.store.suffix())
        except StoreDamaged:
            self.store.close()
            raise

    def do(self, *calls: Callable[[Store], None]) -> Opened:
        """Each in turn, to its end."""
        for call in calls:
            call(self.store)
            assert self.posts.wait() == [None]
        return self

    def append(self, first: int) -> Opened:
        return self.do(lambda store: store.append(frame(first), self.posts.done))

    def checkpoint(self, sequence: int, resyncing: bool = False) -> Opened:
        return self.do(lambda store: store.checkpoint(meta_at(sequence, resyncing), self.posts.done))

    def reset(self, sequence: int) -> Opened:
        return self.do(lambda store: store.reset(Position(1, sequence), self.posts.done))


def never_written_to(directory: Path) -> None:
    Opened(directory).store.close()


def written_to(directory: Path) -> None:
    Opened(directory).append(1).append(4).store.close()


def checkpointed(directory: Path) -> None:
    Opened(directory).append(1).checkpoint(3).append(4).store.close()


def overwritten_by_a_snapshot(directory: Path) -> None:
    Opened(directory).append(1).checkpoint(3, resyncing=True).reset(50).checkpoint(50).store.close()


def cut_to_its_beginning(directory: Path) -> None:
    opened = Opened(directory).append(1)
    opened.do(lambda store: store.truncate(0, Position(0, 0), opened.posts.done)).store.close()


def rebuilt(directory: Path) -> None:
    events = [(Position(1, number), event) for number, event in enumerate(beginning(3), 1)]
    rebuild(directory, Identity(FORMAT_VERSION, "cluster", "node", "newborn"), events, None, 5)


MADE = [never_written_to, written_to, checkpointed, overwritten_by_a_snapshot, cut_to_its_beginning, rebuilt]


@pytest.mark.parametrize("make", MADE)
def test_an_emptied_log_is_noticed(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The start says so and changes nothing; so does the survey of a cluster that is down."""
    directory = tmp_path / "node"
    make(directory)
    assert segment_firsts(directory / "log")
    Opened(directory).store.close()
    shutil.rmtree(directory / "log")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=SENTENCE):
            Opened(directory)
    facts = survey("node", directory, "cluster").facts
    assert facts.condition is StoreCondition.DAMAGED and "holds no log, and there was one" in facts.why


def test_a_last_segment_without_its_header_is_noticed_too(tmp_path: Path) -> None:
    """It is no segment that a crash has left: a log that has begun has another one."""
    never_written_to(tmp_path / "node")
    path = segment_path(tmp_path / "node" / "log", 1)
    path.write_bytes(path.read_bytes()[:7])
    with pytest.raises(StoreDamaged, match=SENTENCE):
        Opened(tmp_path / "node")
    assert path.stat().st_size == 7


@pytest.mark.parametrize("applied", [0, 3])
def test_a_store_of_before_may_have_no_segment_once(tmp_path: Path, applied: int) -> None:
    """Versions before this one kept none in a log that nothing was written to since its beginning."""
    directory = tmp_path / "node"
    open_store(directory, Posts()).close()
    assert not segment_firsts(directory / "log")
    state = LmdbState(directory / "state")
    if applied:
        state.write(meta_at(applied))
    state.close()
    opened = Opened(directory)
    assert opened.suffix == [] and segment_firsts(directory / "log") == [applied + 1]
    opened.append(applied + 1).store.close()
    assert [each.last for each in Opened(directory).suffix] == [applied + 3]


def test_a_store_that_is_being_overwritten_may_have_no_log(tmp_path: Path) -> None:
    """A crash may come between the removal of the old log and the beginning of the new one."""
    directory = tmp_path / "node"
    Opened(directory).append(1).checkpoint(3, resyncing=True).store.close()
    shutil.rmtree(directory / "log")
    opened = Opened(directory)
    assert opened.store.meta.resyncing and opened.suffix == []
    opened.reset(50).checkpoint(50).append(51).store.close()
    again = Opened(directory)
    assert [each.last for each in again.suffix] == [53]


def test_old_segments_are_removed_whatever_was_known_of_them(tmp_path: Path) -> None:
    """The log of a store that is being overwritten is not read at the start; it goes with the end of the copy."""
    directory = tmp_path / "node"
    Opened(directory).append(1).checkpoint(3, resyncing=True).store.close()
    opened = Opened(directory)
    segment_path(directory / "log", 500).write_bytes(b"came back")
    opened.reset(50)
    assert segment_firsts(directory / "log") == [51]


def test_the_log_is_kept_at_its_beginning_by_a_cut(tmp_path: Path) -> None:
    cut_to_its_beginning(tmp_path / "node")
    assert segment_firsts(tmp_path / "node" / "log") == [1]
    opened = Opened(tmp_path / "node")
    assert opened.suffix == [] and opened.append(1).store.tail == Position(1, 3)


def test_a_planner_s_store_is_made_as_a_node_s(tmp_path: Path) -> None:
    """What is read of a whole store is not changed by the notice that its log has begun."""
    make_store(tmp_path / "a", [(1, beginning(4))], 3)
    assert survey("a", tmp_path / "a", "cluster").facts.condition is StoreCondition.WHOLE


def test_a_start_that_is_ended_before_its_first_segment_has_a_header_is_done_again(tmp_path: Path) -> None:
    """The segment without one is no log that has begun, and the next start must not miss it as one that is gone."""
    open_store(tmp_path / "n", Posts()).close()
    segment_path(tmp_path / "n" / "log", 1).touch()
    for _ in range(3):
        store = open_store(tmp_path / "n", Posts())
        assert list(store.suffix()) == [] and store.first == 1
        store.close()
