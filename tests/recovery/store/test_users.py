"""Users in checkpoints on disk: they are read as they were written, and earlier releases read what has none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from recovery.store import lmdb_tables
from recovery.store.lmdb_state import LmdbState, read_meta
from txobserver.access import Access, User
from txobserver.ids import Position
from txobserver.invariants import InvariantBroken
from txobserver.ports.store import Checkpoint, Meta, StoreError

ACCESS = Access({"u": User("u", "hash", ("a", "b"), 3), "v": User("v", "h", (), 4)}, "file", 2, 4)


def checkpoint(access: Access) -> Checkpoint:
    return Checkpoint(Meta(Position(1, 7), [Position(1, 1)], access=access), {}, [], [], [])


def version(state: LmdbState) -> bytes:
    with state._env.begin() as txn:
        return bytes(txn.get(b"format", db=state._tables._meta))


def test_users_are_read_as_they_were_written(tmp_path: Path) -> None:
    state = LmdbState(tmp_path / "state")
    state.write(checkpoint(ACCESS))
    state.check_invariants(checkpoint(ACCESS))
    with pytest.raises(InvariantBroken, match="lets other users in"):
        state.check_invariants(checkpoint(Access()))
    assert state.load().meta.access == ACCESS
    state.close()
    assert read_meta(tmp_path).access.digest() == ACCESS.digest() != 0


def test_an_earlier_release_reads_a_state_without_users_and_refuses_one_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would leave them out, and let in whom its own file names."""
    state = LmdbState(tmp_path)
    state.write(checkpoint(Access()))
    assert version(state) == b"4"
    monkeypatch.setattr(lmdb_tables, "FORMAT_VERSION", 4)
    state.load()
    monkeypatch.undo()
    state.write(checkpoint(ACCESS))
    assert version(state) == b"5"
    monkeypatch.setattr(lmdb_tables, "FORMAT_VERSION", 4)
    with pytest.raises(StoreError, match="has format version 5; this version of txha reads 1 to 4"):
        state.load()
    state.close()


def test_what_an_earlier_release_wrote_has_no_users() -> None:
    data = msgspec.msgpack.encode({"applied": (1, 7), "history": [(1, 1)]})
    assert msgspec.msgpack.decode(data, type=Meta).access == Access()


def test_the_digest_is_of_all_that_counts() -> None:
    """And not of the order in which users came, which a copy need not keep."""
    same = Access(dict(reversed(ACCESS.users.items())), "file", 2, 4)
    assert same.digest() == ACCESS.digest()
    for other in (
        Access({"u": ACCESS.users["u"]}, "file", 2, 4),
        Access({**ACCESS.users, "v": User("v", "h", ("x",), 4)}, "file", 2, 4),
        Access({**ACCESS.users, "v": User("v", "other", (), 4)}, "file", 2, 4),
        Access(ACCESS.users, "", 2, 4),
        Access(ACCESS.users, "file", 3, 4),
        Access(ACCESS.users, "file", 2, 5),
    ):
        assert other.digest() != ACCESS.digest()
