"""The coordination record in SQLite, for several processes on one host.

The rollback journal with synchronous=EXTRA syncs the database *and* the directory entry of the removed journal before a
commit returns; in WAL mode synchronous=FULL syncs the log at each commit as well, but readers and writers of several
processes then share memory, which does not survive on every file system. Either way a removal that was reported is
still there after a power cut (``store_forgets_removal``); the record is one row, so speed does not matter.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from ha.coordination import CasConflict, CoordinationError, Record
from recovery.crash_points import crash_point

FORMAT_VERSION = 1
BUSY_SECONDS = 0.5


class SqliteCoordination:
    """A coordination store in one SQLite file. Calls block for at most about half a second; use it from one thread."""

    def __init__(self, path: Path, cluster: str) -> None:
        self._path = path
        self._cluster = cluster
        self._connection: sqlite3.Connection | None = None

    def read(self) -> Record | None:
        """The record, or None before the first. Raises CoordinationError."""
        try:
            return self._read(self._open())
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """Store the record as the version after ``expected``. Raises CasConflict, CoordinationError."""
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                current = self._read(connection)
                if (current.version if current else 0) != expected:
                    raise CasConflict(current)
                stored = msgspec.structs.replace(record, version=expected + 1)
                crash_point("cas.before")
                connection.execute(
                    "INSERT INTO record (id, version, body) VALUES (1, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET version = excluded.version, body = excluded.body",
                    (stored.version, msgspec.json.encode(stored)),
                )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._failed(error) from error
        crash_point("cas.committed")
        return stored

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("PRAGMA synchronous=EXTRA")
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, FORMAT_VERSION):
                connection.close()
                raise CoordinationError(
                    f"{self._path} has format version {found}; this version of txha reads {FORMAT_VERSION}"
                )
            if found == 0:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS record (id INTEGER PRIMARY KEY, version INTEGER, body BLOB)"
                )
                connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
                connection.execute("COMMIT")
            self._connection = connection
        return self._connection

    def _read(self, connection: sqlite3.Connection) -> Record | None:
        row = connection.execute("SELECT body FROM record WHERE id = 1").fetchone()
        if row is None:
            return None
        try:
            record = msgspec.json.decode(row[0], type=Record)
        except msgspec.DecodeError as error:
            raise CoordinationError(f"{self._path} is damaged: {error}") from error
        if record.cluster != self._cluster:
            raise CoordinationError(f"{self._path} belongs to cluster {record.cluster}, not to cluster {self._cluster}")
        return record

    def _failed(self, error: sqlite3.Error) -> CoordinationError:
        self.close()
        return CoordinationError(f"the coordination store {self._path} failed: {error}")
