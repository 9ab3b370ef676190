"""A state in which damage was found while it was served is not served again by a restart."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from recovery.store.condemned import NAME
from recovery.store.lmdb_state import LmdbState, check
from tests.recovery.store.test_lmdb_state import checkpoint, meta_of
from txobserver.ids import Position
from txobserver.ports.store import Above, At, StoreBusy, StoreDamaged

BODY = "a message that can be recognised"
READS: dict[str, Callable[[LmdbState], object]] = {
    "get": lambda state: state.get(1, 5),
    "page": lambda state: state.page(1, -1, 10),
    "read": lambda state: state.read(Above(1, -1, 10, 99)),
    "read at": lambda state: state.read(At(1, (5,), 99)),
}


def with_a_flipped_bit(directory: Path) -> None:
    """In the body of its only message, which a start does not look at."""
    state = LmdbState(directory)
    whole = checkpoint((1, 5, BODY))
    state.write(whole._replace(meta=meta_of(Position(1, 7), whole.changes)))
    state.close()
    data = (directory / "data.mdb").read_bytes()
    at = data.index(BODY.encode())
    (directory / "data.mdb").write_bytes(data[:at] + b"A" + data[at + 1 :])


@pytest.mark.parametrize("read", READS)
def test_what_was_found_while_it_was_served_is_refused_at_the_next_start(read: str, tmp_path: Path) -> None:
    with_a_flipped_bit(tmp_path)
    check(tmp_path)
    state = LmdbState(tmp_path)
    with pytest.raises(StoreDamaged):
        READS[read](state)
    state.close()
    with pytest.raises(StoreDamaged, match="a checksum in the queue state does not match, found while it was served"):
        check(tmp_path)
    with pytest.raises(StoreDamaged, match="let the node rejoin with a new store"):
        check(tmp_path)


def test_an_entry_too_short_for_an_id_is_found_by_whoever_reads_ids_and_is_not_served_again(tmp_path: Path) -> None:
    LmdbState(tmp_path).close()
    with lmdb.open(str(tmp_path), max_dbs=4) as env, env.begin(write=True) as txn:
        txn.put(struct.pack(">IQ", 1, 5), b"short", db=env.open_db(b"entries", txn=txn))
    state = LmdbState(tmp_path)
    with pytest.raises(StoreDamaged):
        state.ids_page(1, -1, 10)
    state.close()
    assert (tmp_path / NAME).exists()


def test_whoever_only_reads_writes_no_mark(tmp_path: Path) -> None:
    with_a_flipped_bit(tmp_path)
    state = LmdbState(tmp_path, read_only=True)
    with pytest.raises(StoreDamaged):
        state.get(1, 5)
    state.close()
    assert not (tmp_path / NAME).exists()


def test_a_mark_without_a_reason_is_one(tmp_path: Path) -> None:
    """The process or the machine ended while it was written."""
    LmdbState(tmp_path).close()
    check(tmp_path)
    (tmp_path / NAME).touch()
    with pytest.raises(StoreDamaged, match="damage, found while it was served"):
        check(tmp_path)


def test_trouble_that_is_no_damage_leaves_no_mark(tmp_path: Path) -> None:
    """No memory, no slot for a reader: the node ends, and may start again."""
    with_a_flipped_bit(tmp_path)
    state = LmdbState(tmp_path)
    with pytest.raises(StoreBusy, match="start again"), state._reading(serving=True):
        raise lmdb.MemoryError("no memory")
    state.close()
    assert not (tmp_path / NAME).exists()


def test_a_mark_that_no_descriptor_is_left_for_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LmdbState(tmp_path).close()

    def fails(path: Path, **options: object) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fails)
        with pytest.raises(StoreBusy, match="Too many open files"):
            check(tmp_path)
    check(tmp_path)


def test_a_mark_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    with_a_flipped_bit(tmp_path)
    (tmp_path / NAME).mkdir()
    state = LmdbState(tmp_path)
    with pytest.raises(StoreDamaged, match="a checksum"):
        state.get(1, 5)
    state.close()
    with pytest.raises(StoreDamaged, match="is damaged"):
        check(tmp_path)
