"""What must be on the disk before the next step: a new store's parts, and what was set aside."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from recovery.store.aside import PARTS, set_aside
from recovery.store.condemned import condemn
from recovery.store.files import FILE_MODE, Files
from recovery.store.identity import FILE, FORMAT_VERSION, Identity, create_identity
from recovery.store.lmdb_state import MAP_SIZE, MAX_READERS, LmdbState
from recovery.store.store import make_store
from tests.support.logs import Posts, frame, open_log, open_store
from txobserver.ports.store import StoreError

Step = tuple[Path, frozenset[str]]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """The directories that were synced, in order, each with the names that stood in it then."""
    steps: list[Step] = []
    sync = Files.sync_directory

    def look(files: Files, directory: Path) -> None:
        steps.append((directory, frozenset(each.name for each in directory.iterdir())))
        sync(files, directory)

    monkeypatch.setattr(Files, "sync_directory", look)
    return steps


def step_of(synced: list[Step], directory: Path, name: str) -> int:
    """The step with which this name became durable."""
    return next(at for at, (where, names) in enumerate(synced) if where == directory and name in names)


def test_where_a_store_s_identity_is_everything_else_is(tmp_path: Path, synced: list[Step]) -> None:
    store = tmp_path / "n"
    store.mkdir()
    make_store(store, Identity(FORMAT_VERSION, "c", "n", "i"))
    last = step_of(synced, store, FILE)
    assert last == len(synced) - 1
    assert step_of(synced, tmp_path, "n") < last and step_of(synced, store / "state", "data.mdb") < last
    assert {"log", "state"} <= synced[last][1]


def test_what_is_found_at_a_start_is_made_durable(tmp_path: Path, synced: list[Step]) -> None:
    """The process that made it may have been killed before its names were on the disk."""
    posts = Posts()
    open_store(tmp_path / "n", posts).close()
    synced.clear()
    open_store(tmp_path / "n", posts).close()
    assert {tmp_path, tmp_path / "n", tmp_path / "n" / "state"} <= {where for where, _ in synced}


def test_each_part_that_is_set_aside_is_there_and_gone_before_the_next_moves(
    tmp_path: Path, synced: list[Step]
) -> None:
    for part in PARTS:
        (tmp_path / part).touch()
    aside = set_aside(tmp_path, "old", lambda: "old-1", "aside")
    assert aside == tmp_path / "old-1"
    assert synced[0] == (tmp_path, frozenset({"old-1", *PARTS})), "it has a name before anything is in it"
    steps = []
    for count in range(1, len(PARTS) + 1):
        steps += [(aside, frozenset(PARTS[:count])), (tmp_path, frozenset({"old-1", *PARTS[count:]}))]
    assert synced[1:] == steps
    assert set_aside(tmp_path, "old", lambda: "old-2", "aside") is None and not (tmp_path / "old-2").exists()


@pytest.mark.parametrize(
    ("begun", "there", "name"),
    [
        ({"old-1": "state"}, ["log", FILE], "old-1"),
        ({"old-1": "state"}, PARTS, "old-3"),
        ({"old-1": "state", "old-2": "state"}, ["log", FILE], "old-2"),
        ({"old-2": "state", "old-1": "state"}, ["log", FILE], "old-1"),
        ({"old-1": FILE}, ["state", "log"], "old-3"),
    ],
    ids=["one that was begun", "a whole store", "the later one", "by its time", "one that was ended"],
)
def test_where_a_store_goes_that_somebody_had_begun_to_set_aside(
    tmp_path: Path, begun: dict[str, str], there: list[str], name: str
) -> None:
    """Never over another one's parts."""
    for at, (aside, part) in enumerate(begun.items()):
        (tmp_path / aside).mkdir()
        (tmp_path / aside / part).write_text("before")
        os.utime(tmp_path / aside, (at, at))
    for part in there:
        (tmp_path / part).touch()
    assert set_aside(tmp_path, "old", lambda: "old-3", "aside") == tmp_path / name
    assert all((tmp_path / name / part).read_text() == "" for part in there)
    assert all((tmp_path / aside / part).read_text() == "before" for aside, part in begun.items())


def test_what_a_store_creates_only_its_owner_writes_and_only_its_group_reads(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        posts = Posts()
        store = open_store(tmp_path / "n", posts)
        list(store.suffix())
        store.append(frame(1), posts.done)
        assert posts.wait() == [None]
        store.close()
        condemn(tmp_path / "n" / "state", "a test")
    finally:
        os.umask(before)
    for name in ("lock", "state/data.mdb", "state/lock.mdb", "state/damaged", f"log/{1:020d}.log"):
        assert (tmp_path / "n" / name).stat().st_mode & 0o777 == FILE_MODE == 0o640, name


def test_the_limits_of_a_state_are_those_that_are_documented(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    found = state._env.info()
    assert (found["map_size"], found["max_readers"]) == (MAP_SIZE, MAX_READERS)
    state.close()


def test_an_identity_that_cannot_be_made_durable_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(files: Files, directory: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Files, "sync_directory", fails)
    with pytest.raises(StoreError, match="Input/output error"):
        create_identity(tmp_path, Identity(FORMAT_VERSION, "c", "n", "i"))


def test_a_rewritten_file_s_length_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux takes a length that failed to be synced for clean, as it does pages: it must change to become dirty."""
    path, sizes = tmp_path / "f", list[int]()
    path.write_bytes(b"abcdef")
    cut = os.ftruncate

    def look(descriptor: int, size: int) -> None:
        sizes.append(size)
        cut(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", look)
    Files().rewrite(path, 2)
    assert sizes == [7, 6] and path.read_bytes() == b"abcdef"


def test_a_segment_that_is_gone_is_said_in_a_sentence(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path / "log")
    with pytest.raises(StoreError, match=r"00000000000000000009\.log"):
        log._segments.start(9)
