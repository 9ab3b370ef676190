"""The fake PostgreSQL's server: databases, roles, transactions that run or are prepared, its log, and its crashes.

Only what coordinators use is there. ``tests/coordinator_model/test_like_postgresql.py`` holds it to a real server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.coordinator_model.pg_heap import Row, Snapshot, Table, Transaction, Version, fails

DECISIONS = ("name", "committed", "resource", "branch", "at")


class Surroundings(Protocol):
    """Who lets time pass, and others work, while a session waits."""

    def now(self) -> float:
        """Seconds since 1970."""

    def wait(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Until the condition holds, or for so many seconds; whether it holds."""


class Alone:
    """No other session is there: what does not hold now never will."""

    def now(self) -> float:
        return 1.7e9

    def wait(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        return condition()


@dataclass
class Schema:
    owner: str
    tables: dict[str, Table] = field(default_factory=dict)


@dataclass
class Database:
    name: str
    oid: int
    schemas: dict[str, Schema] = field(default_factory=lambda: {"public": Schema("owner")})
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Prepared:
    """``busy``: a session is just settling it."""

    gid: str
    owner: str
    database: str
    tx: Transaction
    busy: bool = False


@dataclass
class Logged:
    """A line of the server's log (WAL). ``what``: commit, commit prepared, rollback prepared, prepare."""

    what: str
    tx: Transaction
    prepared: Prepared | None = None


class Server:
    """``identifier``: 64 bits that no other server has. The role ``owner`` is a superuser."""

    def __init__(self, identifier: int, surroundings: Surroundings | None = None) -> None:
        self.identifier = identifier
        self.surroundings: Surroundings = surroundings or Alone()
        self.databases: dict[str, Database] = {}
        self.roles = {"owner"}
        self.status: dict[int, str] = {}
        self.prepared: dict[str, Prepared] = {}
        self.sessions: list[Any] = []
        self.log: list[Logged] = []
        self.flushed = 0
        self.notified: list[tuple[str, str]] = []
        self._last_oid = 16384
        self.next_xid = 740
        self._transactions = 0

    def new_oid(self) -> int:
        """For whatever is made."""
        self._last_oid += 1
        return self._last_oid

    def create_database(self, name: str) -> Database:
        """With the schema ``public`` alone."""
        return self.databases.setdefault(name, Database(name, self.new_oid()))

    # -- transactions

    def begin(self, wait: Callable[[int], None]) -> Transaction:
        """One that has not done anything."""
        self._transactions += 1
        return Transaction(self._begin_number, self.running, wait, self._transactions, self.surroundings.now())

    def _begin_number(self) -> int:
        xid, self.next_xid = self.next_xid, self.next_xid + 1
        self.status[xid] = "in progress"
        return xid

    def running(self) -> set[int]:
        """Numbers of transactions that have not ended; prepared ones have not."""
        return {xid for xid, status in self.status.items() if status == "in progress"}

    def snapshot(self) -> Snapshot:
        """What has been committed by now."""
        return Snapshot(self.next_xid, frozenset(self.running()))

    def commit(self, tx: Transaction, durable: bool, what: str = "commit", prepared: Prepared | None = None) -> None:
        """It has taken effect; ``durable``: and is on the disk."""
        for table, row in tx.foreign:
            table.versions.append(Version(row, self._commit_elsewhere()))
        self.notified += tx.notifications
        tx.committed = True
        if tx.xid:
            self.status[tx.xid] = "committed"
            self.log.append(Logged(what, tx, prepared))
        if durable and tx.xid:
            self.flushed = len(self.log)

    def _commit_elsewhere(self) -> int:
        xid = self._begin_number()
        self.status[xid] = "committed"
        return xid

    def roll_back(self, tx: Transaction) -> None:
        """As if it had not been."""
        tx.committed = False
        tx.undo_to(0)
        if tx.xid:
            self.status[tx.xid] = "aborted"

    def prepare(self, gid: str, owner: str, database: str, tx: Transaction) -> None:
        """On the disk, with all that stands before it in the log."""
        tx.assign()
        self.prepared[gid] = Prepared(gid, owner, database, tx)
        self.log.append(Logged("prepare", tx, self.prepared[gid]))
        self.flushed = len(self.log)

    def settle(self, found: Prepared, commit: bool) -> None:
        """COMMIT PREPARED or ROLLBACK PREPARED."""
        found.busy = False
        del self.prepared[found.gid]
        if commit:
            self.commit(found.tx, True, "commit prepared", found)
        else:
            self.roll_back(found.tx)
            self.log.append(Logged("rollback prepared", found.tx))
            self.flushed = len(self.log)

    def take_hold(self, gid: str, user: str, database: str) -> Prepared:
        """Of a prepared transaction that is to be settled. Raises psycopg.Error."""
        found = self.prepared.get(gid)
        if found is None:
            raise fails("42704", f'prepared transaction with identifier "{gid}" does not exist')
        if found.busy:
            raise fails("55000", f'prepared transaction with identifier "{gid}" is busy')
        if user not in (found.owner, "owner"):
            raise fails("42501", "permission denied to finish prepared transaction")
        if database != found.database:
            raise fails("0A000", "prepared transaction belongs to another database")
        found.busy = True
        return found

    # -- what breaks

    def _end_sessions(self) -> None:
        for session in list(self.sessions):
            session.end()
        for each in self.prepared.values():
            each.busy = False

    def crash(self) -> None:
        """All sessions are lost, and what was told to be committed without having been flushed."""
        self._end_sessions()
        while len(self.log) > self.flushed:
            lost = self.log.pop()
            assert lost.what == "commit", "everything else is flushed at once"
            self.roll_back(lost.tx)

    def fail_over(self, lines: int) -> int:
        """A standby goes on that lacks at most so many of the last lines, as far as they say ``commit prepared``.

        How many it lacked.
        """
        self._end_sessions()
        lacked = 0
        while lacked < lines and self.log and self.log[-1].what == "commit prepared":
            line = self.log.pop()
            assert line.prepared is not None
            self.status[line.tx.xid], line.tx.committed = "in progress", False
            self.prepared[line.prepared.gid] = line.prepared
            lacked += 1
        self.flushed = len(self.log)
        return lacked

    def rows(self, database: str, schema: str, table: str) -> list[Row]:
        """What is committed in a table."""
        found, snapshot = self.databases[database].schemas[schema].tables[table], self.snapshot()
        return [each.row for each in found.versions if snapshot.sees(each, -1)]
