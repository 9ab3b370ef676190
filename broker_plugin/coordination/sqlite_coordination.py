"""The coordination record in SQLite, for several processes on one host.

The rollback journal with synchronous=EXTRA syncs the database *and* the directory entry of the removed journal before a
commit returns; in WAL mode synchronous=FULL syncs the log at each commit as well, but readers and writers of several
processes then share memory, which does not survive on every file system. Either way a removal that was reported is
still there after a power cut (``store_forgets_removal``); the record is one row, so speed does not matter.

The file is made when a cluster is founded, and when ``txha recover`` writes a record, and never by a node. A file that
is not there holds no record.

SQLite does not check what its pages hold, so the row carries a checksum, and it is there from the start (version 0, no
record yet): a flipped bit can neither change the record nor make it look as if there had never been one.

A record that knows the identity of its cluster is of format 3. One of format 2 is raised when it gets one: a process of
an earlier version would write the record back without it. Its column of checksums gets another name with that, so that
such a process, which looks at the format only when it opens the file, must open it again.

A record that says who is a member is of format 4, and the file is raised to that with the first such record: a process
of an earlier version would write the record back without its members (``record_rewritten_without_members``). Its table
gets another name with that, so that such a process finds no record any more, opens the file again and then says why.

Another user who can read a file can hold SQLite's lock of readers on it, and then no node can write. So the record is
for its owner and group alone, also where another program has made the file (``record_locked_by_another_user``).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from broker_plugin.coordination.polling import Polling
from ha.membership.record import (
    CasConflict,
    CoordinationError,
    ForeignRecord,
    Record,
    Snapshot,
    Waiter,
    may_follow,
)
from recovery.store.files import REAL_FILES

FORMAT_VERSION, WITH_MEMBERS = 3, 4
"""Of a file that is made, and of one whose record says who is a member"""
READABLE = (2, 3, 4)
RECORD, RECORD_WITH_MEMBERS = "record", "record_with_members"
"""The table, and its name from the format on that says who is a member"""
JOURNAL = "-journal"
"""Behind the file's name: what SQLite keeps beside it while it writes"""
MOMENTS = 50
"""How often a file is read that changes while it is read"""
WAY_OUT = "stop all nodes and write a new one with `txha recover`"
DAMAGED = f"is damaged, its record is missing or changed: {WAY_OUT}"
_DAMAGE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
"""What SQLite says of a file that something else has written to"""
BUSY_SECONDS = 0.5
FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""The second: sqlite3 decodes its error messages, and a damaged file may put anything into them"""


class SqliteCoordination:
    """A coordination store in one SQLite file. Calls block for at most about half a second; use it from one thread.

    ``create``: make the file, and its directory entry durable, at the first compare-and-set that expects no record.
    ``confirm``: what is found when the file is opened, also after a failure, is made durable before it is told. Its
    writer may never have seen its last sync succeed, and a power cut would take back what was acted upon.
    """

    def __init__(self, path: Path, cluster: str, create: bool = False, confirm: bool = False) -> None:
        self._path = path
        self._cluster = cluster
        self._create = create
        self._confirm = confirm
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] = (0, 0)
        """Device and inode of the file that is open"""
        self._polling = Polling(self.read)

    def read(self) -> Record | None:
        """The record, or None where there is none. Raises CoordinationError."""
        try:
            connection = self._open()
            return None if connection is None else self._read(connection)
        except FAILURES as error:
            raise self._failed(error) from error

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """Store the record as the version after ``expected``. Raises CasConflict, CoordinationError."""
        try:
            connection = self._open() or (self._found() if self._create and expected == 0 else None)
            if connection is None:
                raise CasConflict(None)
            connection.execute("BEGIN IMMEDIATE")
            try:
                current = self._read(connection)
                if (current.version if current else 0) != expected or not may_follow(record, current):
                    raise CasConflict(current)
                stored = msgspec.structs.replace(record, version=expected + 1)
                body = msgspec.json.encode(stored)
                if stored.cluster_id:
                    _raise_format(connection)
                if stored.membership is not msgspec.UNSET:
                    _raise_to_members(connection)
                row = stored.version, _checksum(stored.version, body), body
                connection.execute(f"REPLACE INTO {_table(connection)} VALUES (1, ?, ?, ?)", row)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._check_still_there()  # if it is not, no other process will read what was stored
        except FAILURES as error:
            raise self._failed(error) from error
        return stored

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As the port says: SQLite tells no process of another process's changes, so the file is looked at."""
        return self._polling.watch(after, seconds, waiter)

    def snapshot(self) -> Snapshot:
        """As the port says: of a copy of the file, so that what a crash has left in it is not touched."""
        found = self._content()
        if "" not in found:
            return Snapshot(0, None)
        with tempfile.TemporaryDirectory(prefix="txha-record-") as directory:
            copy = Path(directory) / self._path.name
            for suffix, content in found.items():
                copy.with_name(copy.name + suffix).write_bytes(content)
            store = SqliteCoordination(copy, self._cluster)
            try:
                record = store.read()
            except ForeignRecord as error:
                raise ForeignRecord(str(error).replace(str(copy), str(self._path))) from error
            except CoordinationError as error:
                why = str(error).replace(str(copy), str(self._path)).removesuffix(f": {WAY_OUT}")
                return Snapshot(0, None, why, found[""])
            finally:
                store.close()
        return Snapshot(record.version if record is not None else 0, record)

    def _content(self) -> dict[str, bytes]:
        """The file and its journal, as far as they are there, by what stands behind their name: of one moment."""
        found = self._content_now()
        for _ in range(MOMENTS):
            before, found = found, self._content_now()
            if found == before:
                return found
        raise CoordinationError(f"{self._path} changes all the time, so it cannot be looked at as a whole")

    def _content_now(self) -> dict[str, bytes]:
        found = {}
        for suffix in ("", JOURNAL):
            path = self._path.with_name(self._path.name + suffix)
            try:
                found[suffix] = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CoordinationError(f"{path} cannot be read: {error.strerror}") from error
        return found

    def give_up(self) -> None:
        """Nothing: no call waits for longer than BUSY_SECONDS."""

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection | None:
        """The open file; None where there is none, or an empty one: nothing was ever recorded there, or it is lost."""
        if self._connection is not None:
            self._check_still_there()
            return self._connection
        there = self._inode()
        self._keep_others_out()
        try:
            connection = self._connect("rw")
        except sqlite3.OperationalError:
            if self._path.exists():
                raise
            return None
        try:
            found = _format_version(connection)
            if found == 0 and _is_empty(connection):
                connection.close()
                return None
            if found not in READABLE:
                raise CoordinationError(
                    f"{self._path} has format version {found}; this version of txha reads 2 to {WITH_MEMBERS}"
                )
            if self._confirm:
                _write_unchanged(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._opened = connection, there
        self._check_still_there()
        return connection

    def _found(self) -> sqlite3.Connection:
        """Make the file, durable in its directory before anything is recorded in it."""
        with suppress(OSError):  # SQLite says what is wrong
            REAL_FILES.close(REAL_FILES.create(self._path))
        connection = self._connect("rwc")
        try:
            _format(connection)
            REAL_FILES.sync_directory(self._path.parent)
        except OSError as error:
            raise CoordinationError(f"{self._path.parent} cannot be synced: {error.strerror}") from error
        finally:
            connection.close()
        opened = self._open()
        if opened is None:
            raise CoordinationError(f"{self._path} was removed while it was made")
        return opened

    def _keep_others_out(self) -> None:
        """Take away what neither owner nor group needs, where the file is ours. SQLite gives its journal the same."""
        with suppress(OSError):
            found = os.stat(self._path)
            if found.st_uid == os.geteuid() and found.st_mode & stat.S_IRWXO:
                os.chmod(self._path, stat.S_IMODE(found.st_mode) & ~stat.S_IRWXO)

    def _connect(self, mode: str) -> sqlite3.Connection:
        """``mode``: rw, or rwc to make the file if there is none."""
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("PRAGMA synchronous=EXTRA")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_still_there(self) -> None:
        """An open file goes on working when it is removed or replaced, and then others go by another record."""
        if self._inode() != self._opened:
            self.close()
            raise CoordinationError(f"the coordination store {self._path} was removed or replaced while it was in use")

    def _inode(self) -> tuple[int, int]:
        """Device and inode of the file that has our name now; zeros if none has."""
        try:
            found = os.stat(self._path)
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino

    def _read(self, connection: sqlite3.Connection) -> Record | None:
        row = _row(connection)
        if row is None or len(row) != 4 or row[2] != _checksum(row[1], row[3]):
            raise CoordinationError(f"the coordination store {self._path} {DAMAGED}")
        if row[1] == 0:
            return None
        record = msgspec.json.decode(row[3], type=Record)
        if record.cluster != self._cluster:
            raise ForeignRecord(
                f"{self._path} belongs to cluster {record.cluster}, not to cluster {self._cluster}: name the right "
                "coordination file, or move this one away and write a new record with `txha recover`"
            )
        return record

    def _failed(self, error: Exception) -> CoordinationError:
        self.close()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says where it was found
        if code in _DAMAGE or isinstance(error, UnicodeDecodeError):
            return CoordinationError(f"the coordination store {self._path} is damaged ({error}): {WAY_OUT}")
        return CoordinationError(f"the coordination store {self._path} failed: {error}")


def _format_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _write_unchanged(connection: sqlite3.Connection) -> None:
    """A transaction that changes nothing, and is synced like any other: with it, so is all before it.

    SQLite writes the page of the version even if that stays what it is. The journal that comes and goes makes the
    directory dirty, so that the removal of the last one is synced with it.
    """
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version={_format_version(connection)}")
    connection.execute("COMMIT")


def _raise_format(connection: sqlite3.Connection) -> None:
    """To the format of today, within the transaction that is open."""
    if _format_version(connection) == 2:
        connection.execute("ALTER TABLE record RENAME COLUMN crc TO checksum")
        connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")


def _raise_to_members(connection: sqlite3.Connection) -> None:
    """To the format of a record that says who is a member, within the transaction that is open."""
    if _format_version(connection) < WITH_MEMBERS:
        connection.execute(f"ALTER TABLE {RECORD} RENAME TO {RECORD_WITH_MEMBERS}")
        connection.execute(f"PRAGMA user_version={WITH_MEMBERS}")


def _table(connection: sqlite3.Connection) -> str:
    return RECORD_WITH_MEMBERS if _format_version(connection) >= WITH_MEMBERS else RECORD


def _row(connection: sqlite3.Connection) -> tuple[Any, ...] | None:
    """The row of the record. Another process may raise the format between two looks at the file."""
    table = _table(connection)
    try:
        return _row_in(connection, table)
    except sqlite3.OperationalError:
        if (now := _table(connection)) == table:
            raise
        return _row_in(connection, now)


def _row_in(connection: sqlite3.Connection, table: str) -> tuple[Any, ...] | None:
    found: tuple[Any, ...] | None = connection.execute(f"SELECT * FROM {table} WHERE id = 1").fetchone()
    return found


def _is_empty(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def _format(connection: sqlite3.Connection) -> None:
    """Make the table with its one row, all in one transaction, if the file is still empty."""
    connection.execute("BEGIN IMMEDIATE")
    if _is_empty(connection):
        connection.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, version INTEGER, checksum INTEGER, body BLOB)")
        connection.execute("INSERT INTO record VALUES (1, 0, ?, ?)", (_checksum(0, b""), b""))
        connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
    connection.execute("COMMIT")


def _checksum(version: object, body: object) -> int:
    """Of a row; its columns may hold anything once the file is damaged."""
    return zlib.crc32(repr((version, body)).encode())
