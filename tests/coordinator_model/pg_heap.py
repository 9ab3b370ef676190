"""Tables of the fake PostgreSQL: versions of rows, who sees which, and who has to wait for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psycopg import errors

Row = dict[str, Any]


def fails(sqlstate: str, text: str) -> Exception:
    """The error that psycopg raises for a state of SQL's."""
    return errors.lookup(sqlstate)(text)


@dataclass
class Version:
    """A row as one transaction wrote it. ``deleted``: the transaction that has deleted it, or 0."""

    row: Row
    made: int
    deleted: int = 0


@dataclass
class Table:
    """``key``: a column whose values are unique. ``late``: one of which that is looked at when a transaction ends.

    ``persistence`` as in ``pg_class``. ``foreign``: the table that it stands for.
    """

    oid: int
    schema: str
    name: str
    owner: str
    columns: tuple[str, ...]
    key: str = ""
    late: str = ""
    persistence: str = "p"
    maker: Transaction | None = None
    """No other session sees it until that has committed."""
    foreign: Table | None = None
    versions: list[Version] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    """What had been committed: every number below ``limit`` that was not ``running``."""

    limit: int
    running: frozenset[int]

    def has(self, xid: int, own: int) -> bool:
        """Whether what this transaction did is seen."""
        return xid == own or (xid < self.limit and xid not in self.running)

    def sees(self, version: Version, own: int) -> bool:
        """Whether this version is seen. What was rolled back is not in a table any more."""
        return self.has(version.made, own) and not (version.deleted and self.has(version.deleted, own))


class Transaction:
    """One transaction's number, and what it has done to tables. ``began``: a time that no other one has.

    ``at``: when it began by the server's clock.

    ``begin_number``: gives it a number. ``running``: numbers of all that have not ended. ``wait``: until one has ended;
    raises what PostgreSQL does when that takes too long.
    """

    def __init__(
        self,
        begin_number: Callable[[], int],
        running: Callable[[], set[int]],
        wait: Callable[[int], None],
        began: int = 0,
        at: float = 0.0,
    ) -> None:
        self.xid = 0
        self.began = began
        self.at = at
        self.committed = False
        self._begin_number = begin_number
        self._running = running
        self._wait = wait
        self.isolation = "read committed"
        self.snapshot: Snapshot | None = None
        self.undo: list[Callable[[], None]] = []
        self.late: list[tuple[Table, Any]] = []
        self.notifications: list[tuple[str, str]] = []
        self.listens = False
        self.foreign: list[tuple[Table, Row]] = []
        self.snapshot_there: Snapshot | None = None
        """Of the transaction at the server of foreign tables"""
        self.not_to_prepare: list[str] = []
        """What PREPARE refuses: sentences."""

    def assign(self) -> int:
        """Its number; from now on it has one."""
        if not self.xid:
            self.xid = self._begin_number()
        return self.xid

    @property
    def _repeatable(self) -> bool:
        return self.isolation != "read committed"

    def _seen(self, version: Version) -> bool:
        assert self.snapshot is not None, "no statement has begun"
        return self.snapshot.sees(version, self.xid or -1)

    def _other(self, xid: int) -> bool:
        return bool(xid) and xid != self.xid and xid in self._running()

    def _rival(self, table: Table, column: str, value: Any) -> Version | None:
        """A row that has this value, once every transaction that might take it away or leave it has ended."""
        while True:
            found = [each for each in table.versions if each.row[column] == value]
            waits = [xid for each in found for xid in (each.made, each.deleted) if self._other(xid)]
            if not waits:
                return next((each for each in found if not each.deleted), None)
            self._wait(waits[0])

    def select(self, table: Table) -> list[Row]:
        """What it sees."""
        if table.foreign is not None:
            assert self.snapshot_there is not None, "it has not been there"
            there = [each.row for each in table.foreign.versions if self.snapshot_there.sees(each, -1)]
            return there + [row for which, row in self.foreign if which is table.foreign]
        return [each.row for each in table.versions if self._seen(each)]

    def insert(self, table: Table, row: Row, nothing: bool = False) -> int:
        """How many rows: 0 if there is such a row, and ``nothing`` is to be done then."""
        rival = None
        if table.key:
            self.assign()
            rival = self._rival(table, table.key, row[table.key])
        if rival is not None and nothing:
            if self._repeatable and not self._seen(rival):
                raise fails("40001", "could not serialize access due to concurrent update")
            return 0
        if rival is not None:
            raise fails("23505", f'duplicate key value violates unique constraint "{table.name}_pkey"')
        if table.late:
            self.late.append((table, row[table.late]))
        version = Version(row, self.assign())
        table.versions.append(version)
        self.undo.append(lambda: _remove(table, version))
        return 1

    def delete(self, table: Table, wanted: Callable[[Row], bool]) -> int:
        """How many rows."""
        count = 0
        for version in [each for each in table.versions if wanted(each.row) and self._seen(each)]:
            self.assign()
            while self._other(version.deleted):
                self._wait(version.deleted)
            if version.deleted and self._repeatable:
                raise fails("40001", "could not serialize access due to concurrent delete")
            if version.deleted:
                continue
            version.deleted = self.xid
            self.undo.append(lambda version=version: setattr(version, "deleted", 0))  # type: ignore[misc]
            count += 1
        return count

    def check_late(self) -> None:
        """Constraints that are looked at when the transaction ends."""
        for table, value in self.late:
            while self._check_once(table, value):
                continue

    def _check_once(self, table: Table, value: Any) -> bool:
        """Whether a transaction was waited for. The rows are looked at in their order, and the first that counts
        decides."""
        mine = False
        for each in [each for each in table.versions if each.row[table.late] == value]:
            waits = [xid for xid in (each.made, each.deleted) if self._other(xid)]
            if waits:
                self._wait(waits[0])
                return True
            if each.deleted:
                continue
            if mine or each.made != self.xid:
                raise fails("23505", f'duplicate key value violates unique constraint "{table.name}_{table.late}_key"')
            mine = True
        return False

    def undo_to(self, mark: int) -> None:
        """Take back what was done behind a mark."""
        while len(self.undo) > mark:
            self.undo.pop()()


def _remove(table: Table, version: Version) -> None:
    table.versions[:] = [each for each in table.versions if each is not version]
