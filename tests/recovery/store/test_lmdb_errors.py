"""What LMDB's errors are taken for: to call a store damaged for what says nothing about it would give it up."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import lmdb
import pytest

from recovery.planner.survey import survey
from recovery.store import lmdb_state
from recovery.store.child import in_a_child
from recovery.store.lmdb_errors import DAMAGE, SHORTAGE, explained
from recovery.store.lmdb_state import LmdbState, check, read_meta
from tests.recovery.planner.stores import beginning, make_store
from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError, StoreFull

FULL = (lmdb.DiskError, lmdb.MapFullError)
LAST_PAGE = 136
"""Where a meta page names the last page, in 8 bytes, the lowest first"""


class WithoutMemory:
    """An environment of LMDB's in which there is no memory for a transaction."""

    def __init__(self, env: lmdb.Environment) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def __enter__(self) -> WithoutMemory:
        return self

    def __exit__(self, *error: object) -> None:
        self._env.close()

    def begin(self, *args: Any, **options: Any) -> Any:
        raise lmdb.MemoryError("mdb_txn_begin: Cannot allocate memory")


@pytest.mark.parametrize("where", ["open", "begin"])
def test_no_memory_in_lmdb_says_nothing_about_the_store(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was damage, with the advice to let the node rejoin with a new store; ``recover`` would have set it aside."""
    make_store(tmp_path / "a", [(1, beginning(9))], 9)
    real = lmdb.open

    def opened(*args: Any, **options: Any) -> Any:
        if where == "open":
            raise lmdb.MemoryError(f"{args[0]}: Cannot allocate memory")
        return WithoutMemory(real(*args, **options))

    with monkeypatch.context() as patch:
        patch.setattr(lmdb_state.lmdb, "open", opened)
        with pytest.raises(StoreBusy, match="Cannot allocate memory"):
            check(tmp_path / "a" / "state")
        with pytest.raises(StoreBusy, match="Cannot allocate memory"):
            read_meta(tmp_path / "a")
        with pytest.raises(StoreBusy, match="Cannot allocate memory"):
            survey("a", tmp_path / "a", "cluster")
    check(tmp_path / "a" / "state")


def _opened(state: Path) -> None:
    LmdbState(state, read_only=True).close()


def test_no_room_for_the_map_says_nothing_about_the_store(tmp_path: Path) -> None:
    LmdbState(tmp_path).close()

    def job() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
        _opened(tmp_path)

    with pytest.raises(StoreBusy, match="Cannot allocate memory"):
        in_a_child(job, tmp_path)


def test_no_descriptor_for_the_queue_state_says_nothing_about_the_store(tmp_path: Path) -> None:
    LmdbState(tmp_path).close()

    def job() -> None:
        number = os.dup(0)  # the lowest that is free
        os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
        _opened(tmp_path)

    with pytest.raises(StoreBusy, match="Too many open files"):
        in_a_child(job, tmp_path)


def test_a_map_that_only_a_damaged_page_asks_for_is_damage(tmp_path: Path) -> None:
    """The system has no memory for it, and never will: who started the node again and again would not hear of it."""
    LmdbState(tmp_path).close()
    whole = (tmp_path / "data.mdb").read_bytes()
    for byte in (5, 6, 7):
        found = []
        for meta in (0, 4096):  # the older one is not looked at
            data = bytearray(whole)
            data[meta + LAST_PAGE + byte] ^= 4
            (tmp_path / "data.mdb").write_bytes(data)
            try:
                check(tmp_path)
            except StoreError as error:
                found.append(type(error))
        assert found == [StoreDamaged], byte


def test_every_error_of_lmdb_s_is_of_the_kind_that_it_means(tmp_path: Path) -> None:
    every = [each for each in vars(lmdb).values() if isinstance(each, type) and issubclass(each, lmdb.Error)]
    assert {lmdb.Error, lmdb.PanicError, lmdb.ReadonlyError, *DAMAGE, *SHORTAGE, *FULL} < set(every)
    for each in every:
        kind = StoreDamaged if each in DAMAGE else StoreBusy if each in SHORTAGE else StoreError
        assert type(explained(each("of LMDB"), tmp_path)) is (StoreFull if each in FULL else kind), each
