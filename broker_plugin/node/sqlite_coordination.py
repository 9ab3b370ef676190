"""The coordination record in SQLite, for several processes on one host.

The rollback journal with synchronous=EXTRA syncs the database *and* the directory entry of the removed journal before a
commit returns; in WAL mode synchronous=FULL syncs the log at each commit as well, but readers and writers of several
processes then share memory, which does not survive on every file system. Either way a removal that was reported is
still there after a power cut (``store_forgets_removal``); the record is one row, so speed does not matter.

SQLite does not check what its pages hold, so the row carries a checksum, and it is there from the start (version 0, no
record yet): a flipped bit can neither change the record nor make it look as if there had never been one.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

import msgspec

from ha.coordination import CasConflict, CoordinationError, Record

FORMAT_VERSION = 2
BUSY_SECONDS = 0.5
FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""The second: sqlite3 decodes its error messages, and a damaged file may put anything into them"""


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
        except FAILURES as error:
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
                body = msgspec.json.encode(stored)
                connection.execute(
                    "UPDATE record SET version = ?, crc = ?, body = ? WHERE id = 1",
                    (stored.version, _checksum(stored.version, body), body),
                )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except FAILURES as error:
            raise self._failed(error) from error
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
            try:
                connection.execute("PRAGMA journal_mode=DELETE")
                connection.execute("PRAGMA synchronous=EXTRA")
                if _format_version(connection) == 0:
                    _format(connection)
                found = _format_version(connection)
                if found != FORMAT_VERSION:
                    raise CoordinationError(
                        f"{self._path} has format version {found}; this version of txha reads {FORMAT_VERSION}"
                    )
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _read(self, connection: sqlite3.Connection) -> Record | None:
        row = connection.execute("SELECT version, crc, body FROM record WHERE id = 1").fetchone()
        if row is None or row[1] != _checksum(row[0], row[2]):
            raise CoordinationError(f"the coordination store {self._path} is damaged: its record is missing or changed")
        if row[0] == 0:
            return None
        record = msgspec.json.decode(row[2], type=Record)
        if record.cluster != self._cluster:
            raise CoordinationError(f"{self._path} belongs to cluster {record.cluster}, not to cluster {self._cluster}")
        return record

    def _failed(self, error: Exception) -> CoordinationError:
        self.close()
        return CoordinationError(f"the coordination store {self._path} failed: {error}")


def _format_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _format(connection: sqlite3.Connection) -> None:
    """Make the table with its one row, all in one transaction, if the file is still empty."""
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        connection.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, version INTEGER, crc INTEGER, body BLOB)")
        connection.execute("INSERT INTO record VALUES (1, 0, ?, ?)", (_checksum(0, b""), b""))
        connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
    connection.execute("COMMIT")


def _checksum(version: object, body: object) -> int:
    """Of a row; its columns may hold anything once the file is damaged."""
    return zlib.crc32(repr((version, body)).encode())
