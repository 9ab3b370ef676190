"""The coordination record in SQLite: how its file is made and opened, and what is let go of after a failure."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.coordination import sqlite_coordination
from broker_plugin.coordination.sqlite_coordination import BUSY_SECONDS, SqliteCoordination
from ha.membership.members import ClusterNode, Membership
from ha.membership.record import CoordinationError, Record
from tests.broker_plugin.coordination.test_sqlite_coordination import record
from txobserver.ids import Member


def test_a_new_file_is_durable_in_its_directory_before_anything_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    monkeypatch.setattr(
        "recovery.store.files.Files.sync_directory", lambda files, path: synced.append((path, store.read() is None))
    )
    store.compare_and_set(0, record())
    assert synced == [(tmp_path, True)]


def _mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}"


def test_other_users_cannot_open_the_record_and_so_not_lock_it(tmp_path: Path) -> None:
    """Who can read a file can hold SQLite's shared lock for ever; no lease is renewed then
    (``record_locked_by_another_user``)."""
    path = tmp_path / "r"
    before = os.umask(0)
    try:
        SqliteCoordination(path, "c", create=True).compare_and_set(0, record())
    finally:
        os.umask(before)
    assert _mode(path) == "640"


@pytest.mark.parametrize("holds", ["nothing", "a record"])
def test_other_users_lose_a_record_that_another_program_has_made(tmp_path: Path, holds: str) -> None:
    path = tmp_path / "r"
    path.touch()
    if holds == "a record":
        SqliteCoordination(path, "c", create=True).compare_and_set(0, record())
    path.chmod(0o666)
    SqliteCoordination(path, "c").read()
    assert _mode(path) == "660"


def test_a_directory_that_cannot_be_synced_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(files: object, path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("recovery.store.files.Files.sync_directory", fails)
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    with pytest.raises(CoordinationError, match=r"^.* cannot be synced: Input/output error$"):
        store.compare_and_set(0, record())


def test_a_connection_that_cannot_be_used_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its lock, or what else it holds, would stay for as long as the process."""
    made: list[Any] = []

    class Failing:
        def __init__(self) -> None:
            self.closed = False
            made.append(self)

        def execute(self, statement: str) -> None:
            raise sqlite3.DatabaseError("no")

        def close(self) -> None:
            self.closed = True

    (tmp_path / "r").touch()
    asked: list[Any] = []
    monkeypatch.setattr(sqlite3, "connect", lambda name, **more: asked.append((name, more)) or Failing())
    with pytest.raises(CoordinationError):
        SqliteCoordination(tmp_path / "r", "c").read()
    assert [each.closed for each in made] == [True]
    options = {"uri": True, "timeout": BUSY_SECONDS, "isolation_level": None, "check_same_thread": False}
    assert asked == [(f"{(tmp_path / 'r').as_uri()}?mode=rw", options)]


def test_after_a_failure_the_file_is_opened_anew(tmp_path: Path) -> None:
    """A connection that has failed may go on failing, or hold a lock."""
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    store.compare_and_set(0, record())
    used: Any = store._connection
    other = sqlite3.connect(tmp_path / "r", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CoordinationError):
        store.read()
    assert store._connection is None
    with pytest.raises(sqlite3.ProgrammingError):
        used.execute("SELECT 1")
    other.execute("ROLLBACK")
    assert store.read() is not None


def test_a_file_of_another_format_is_let_go_of(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "r")
    connection.execute("CREATE TABLE record (id INTEGER)")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CoordinationError, match="format version 99") as raised:
        SqliteCoordination(tmp_path / "r", "c").read()
    held = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert raised.value and tmp_path / "r" not in held


def test_a_format_that_is_raised_between_two_looks_at_the_file_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has its other name by then. Where it has none of both, that is one."""
    store, member = SqliteCoordination(tmp_path / "r", "c", create=True), Member("a", "1")
    nodes = (ClusterNode("a", "h", 5, True, "1"),)
    there = store.compare_and_set(
        0, Record("c", 0, 1, member, (member,), membership=Membership(1, nodes), cluster_id="1")
    )
    looks, look = iter((sqlite_coordination.RECORD,)), sqlite_coordination._table
    monkeypatch.setattr(sqlite_coordination, "_table", lambda connection: next(looks, None) or look(connection))
    assert store.read() == there
    monkeypatch.setattr(sqlite_coordination, "_table", lambda connection: sqlite_coordination.RECORD)
    with pytest.raises(CoordinationError, match="no such table"):
        store.read()
    store.close()
