"""A session of the fake PostgreSQL: transaction blocks, savepoints, settings, and what becomes of errors in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from tests.coordinator_model.pg_heap import Table, Transaction, fails
from tests.coordinator_model.pg_server import Database, Prepared, Schema, Server

DEFAULTS = {
    "search_path": '"$user", public',
    "synchronous_commit": "on",
    "role": "none",
    "default_transaction_isolation": "read committed",
    "lock_timeout": "0",
    "standard_conforming_strings": "on",
}


class Answer(NamedTuple):
    """``columns``: None for a statement that gives no rows. ``count``: of rows that were given or changed."""

    columns: tuple[str, ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    count: int = -1
    told: str = ""


@dataclass
class Savepoint:
    name: str
    mark: int
    late: int
    notifications: int
    foreign: int


class Settings:
    """What holds for a session, and for the transaction in it; ``given`` is what holds at first."""

    def __init__(self, given: dict[str, str]) -> None:
        self._settings = self._before = given
        self._local: dict[str, str] = {}
        self._custom: set[str] = set()

    def get(self, name: str) -> str:
        """What holds now."""
        return self._local.get(name, self._settings[name])

    def custom(self, name: str) -> str | None:
        """What holds now of a setting that PostgreSQL does not know; None if it was never set."""
        return self.get(name) if name in self._custom else None

    def set(self, name: str, value: str, local: bool) -> None:
        """For the transaction, or for the session if the transaction is committed. Raises psycopg.Error."""
        if "." in name:
            self._custom.add(name)
            self._settings.setdefault(name, "")
            self._before.setdefault(name, "")
        elif name not in DEFAULTS:
            raise fails("42704", f'unrecognized configuration parameter "{name}"')
        if local:
            self._local[name] = value
        else:
            self._local.pop(name, None)
            self._settings = {**self._settings, name: value}

    def begin(self) -> None:
        """A transaction begins: what it sets holds no longer than it does if it is rolled back."""
        self._before, self._local = self._settings, dict(self._local)

    def undo(self) -> None:
        """It is rolled back."""
        self._settings = self._before

    def end(self) -> None:
        """It has ended: what was set for it alone holds no more."""
        self._local = {}


class Names:
    """What a session's names of tables mean; ``temporary`` are its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.temporary: dict[str, Table] = {}

    @property
    def schemas(self) -> list[tuple[str, Schema]]:
        """Those of the search path that are there and may be used."""
        names = [each.strip().strip('"') for each in self._session.settings.get("search_path").split(",")]
        names = [self._session.user if each == "$user" else each for each in names]
        found = [
            (each, self._session.database.schemas[each]) for each in names if each in self._session.database.schemas
        ]
        return [(name, schema) for name, schema in found if self.may_use(name, schema)]

    def may_use(self, name: str, schema: Schema) -> bool:
        """Whether this role may name what is in a schema."""
        return self._session.user in ("owner", schema.owner) or name == "public"

    def find(self, name: str) -> Table | None:
        """A table by its name, as SQL has it. Raises psycopg.Error for a schema that may not be used."""
        parts = [each.strip('"') for each in name.split(".")]
        if len(parts) == 2:
            schema = self._session.database.schemas.get(parts[0])
            if schema is not None and not self.may_use(parts[0], schema):
                raise fails("42501", f"permission denied for schema {parts[0]}")
            return None if schema is None else self.seen(schema, parts[1])
        if parts[0] in self.temporary:
            return self.temporary[parts[0]]
        return next((found for _, schema in self.schemas if (found := self.seen(schema, parts[0]))), None)

    def seen(self, schema: Schema, name: str) -> Table | None:
        """A table, if the transaction that has made it has committed."""
        found = schema.tables.get(name)
        if found is None or found.maker is None or found.maker.committed or found.maker is self._session.tx:
            return found
        return None

    def table(self, name: str) -> Table:
        """The same, to be read or written. Raises psycopg.Error."""
        found = self.find(name)
        if found is None:
            raise fails("42P01", f'relation "{name}" does not exist')
        if self._session.user not in ("owner", found.owner):
            raise fails("42501", f"permission denied for table {found.name}")
        if found.persistence == "t":
            self._session.refuses_to_prepare("a transaction that has operated on temporary objects")
        return found


class Savepoints:
    """Those of the transaction in a session: ``marks``, the last one last."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.marks: list[Savepoint] = []

    def savepoint(self, name: str) -> Answer:
        """SAVEPOINT."""
        tx = self._session.transaction()
        if not self._session.block:
            raise fails("25P01", "SAVEPOINT can only be used in transaction blocks")
        marks = (len(tx.undo), len(tx.late), len(tx.notifications), len(tx.foreign))
        self.marks.append(Savepoint(name, *marks))
        return Answer(told="SAVEPOINT")

    def release(self, name: str) -> Answer:
        """RELEASE SAVEPOINT."""
        self._session.transaction()
        if not self._session.block:
            raise fails("25P01", "RELEASE SAVEPOINT can only be used in transaction blocks")
        self._drop(name, 0)
        return Answer(told="RELEASE")

    def back_to(self, name: str) -> Answer:
        """ROLLBACK TO SAVEPOINT."""
        if not self._session.block:
            raise fails("25P01", "ROLLBACK TO SAVEPOINT can only be used in transaction blocks")
        self._drop(name, 1)
        self.undo_last()
        self._session.failed = False
        return Answer(told="ROLLBACK")

    def undo_last(self) -> None:
        """What was done behind the last one is undone."""
        to, tx = self.marks[-1], self._session.tx
        assert tx is not None
        tx.undo_to(to.mark)
        del tx.late[to.late :], tx.notifications[to.notifications :], tx.foreign[to.foreign :]

    def forget(self) -> None:
        """The transaction has ended."""
        self.marks.clear()

    def _drop(self, name: str, keep: int) -> None:
        at = max((index for index, each in enumerate(self.marks) if each.name == name), default=None)
        if at is None:
            raise fails("3B001", f'savepoint "{name}" does not exist')
        del self.marks[at + keep :]


class Session:
    """One role in one database, until ``end``. ``alive``: whether the server knows it still."""

    def __init__(self, server: Server, database: str, user: str, given: dict[str, str]) -> None:
        self.server = server
        self.database: Database = server.databases[database]
        self.user = user
        self.alive = True
        self.failed = False
        self.block = False
        self.tx: Transaction | None = None
        self.settings = Settings({**DEFAULTS, **self.database.settings, **given})
        self.names = Names(self)
        self.savepoints = Savepoints(self)
        self._waits_for = 0
        self._settling: Prepared | None = None
        server.sessions.append(self)

    @property
    def status(self) -> TransactionStatus:
        """As the client is told with each answer."""
        if not self.block:
            return TransactionStatus.IDLE
        return TransactionStatus.INERROR if self.failed else TransactionStatus.INTRANS

    def end(self) -> None:
        """The client is gone, or the server. What was not committed is rolled back."""
        if self.alive:
            self._roll_back()
            self.alive = False
            if self._settling is not None:
                self._settling.busy = False
            self.server.sessions.remove(self)

    # -- statements

    def message(self, statements: Sequence[Callable[[], Answer]]) -> list[Answer]:
        """Statements that came in one message: outside of a block they are one transaction."""
        answers: list[Answer] = []
        try:
            for statement in statements:
                answers.append(statement())
            if not self.block:
                self._commit()
        except psycopg.Error:
            if not self.alive:
                raise
            self._fail()
            raise
        return answers

    def query(self) -> Transaction:
        """The transaction of a statement that looks at data or changes them. Raises psycopg.Error."""
        tx = self.transaction()
        if tx.snapshot is None or tx.isolation == "read committed":
            tx.snapshot = self.server.snapshot()
        return tx

    def transaction(self) -> Transaction:
        """The one that is open, or a new one. Raises psycopg.Error if a statement has failed in it."""
        if self.failed:
            raise fails("25P02", "current transaction is aborted, commands ignored until end of transaction block")
        if self.tx is None:
            self.tx = self.server.begin(self._wait)
            self.tx.isolation = self.settings.get("default_transaction_isolation")
            self.settings.begin()
        return self.tx

    def refuses_to_prepare(self, what: str) -> None:
        """From now on, whatever becomes of savepoints."""
        self.transaction().not_to_prepare.append(f"cannot PREPARE {what}")

    def wait_for_maker(self, schema: Schema, name: str) -> None:
        """Of a table that is to be made, too. Raises psycopg.Error."""
        while name in schema.tables and self.names.seen(schema, name) is None:
            maker = schema.tables[name].maker
            assert maker is not None
            self._wait(maker.xid)

    def _wait(self, xid: int) -> None:
        """Until another transaction has ended. Raises psycopg.Error."""
        self._waits_for = xid
        try:
            limit = self.settings.get("lock_timeout")
            seconds = {"ms": 0.001}.get(limit[-2:], 1.0) * float(limit.rstrip("ms")) or None
            if self._is_deadlock():
                raise fails("40P01", "deadlock detected")
            if not self.server.surroundings.wait(lambda: xid not in self.server.running() or not self.alive, seconds):
                raise fails("55P03", "canceling statement due to lock timeout")
            if not self.alive:
                raise psycopg.OperationalError("server closed the connection unexpectedly")
        finally:
            self._waits_for = 0

    def _is_deadlock(self) -> bool:
        owners = {each.tx.xid: each for each in self.server.sessions if each.tx is not None and each.tx.xid}
        found, seen = owners.get(self._waits_for), 0
        while found is not None and found._waits_for and found is not self and seen < len(owners):
            found, seen = owners.get(found._waits_for), seen + 1
        return found is self

    # -- the block

    def begin(self, isolation: str = "") -> Answer:
        """BEGIN."""
        tx = self.transaction()
        self.block = True
        if isolation:
            tx.isolation = isolation
        return Answer(told="BEGIN")

    def finish(self, commit: bool, chain: bool) -> Answer:
        """COMMIT or ROLLBACK; ``chain``: and the next one begins at once, of the same kind. Raises psycopg.Error."""
        if chain and not self.block:
            what = "COMMIT" if commit else "ROLLBACK"
            raise fails("25P01", f"{what} AND CHAIN can only be used in transaction blocks")
        isolation = self.tx.isolation if self.tx is not None else ""
        answer = self.commit() if commit else self.roll_back()
        if chain:
            self.begin(isolation)
        return answer

    def commit(self) -> Answer:
        """COMMIT; of a transaction in which a statement has failed, ROLLBACK."""
        if self.failed:
            return self.roll_back()
        self.block = False
        self._commit()
        return Answer(told="COMMIT")

    def roll_back(self) -> Answer:
        """ROLLBACK."""
        self._roll_back()
        return Answer(told="ROLLBACK")

    def prepare(self, gid: str) -> Answer:
        """PREPARE TRANSACTION. Raises psycopg.Error, and rolls back then."""
        if self.failed or not self.block:
            return self.roll_back()
        tx = self.transaction()
        self.block = False
        tx.check_late()
        if tx.not_to_prepare:
            raise fails("0A000", tx.not_to_prepare[0])
        if gid in self.server.prepared:
            raise fails("42710", f'transaction identifier "{gid}" is already in use')
        if tx.notifications or tx.listens:
            raise fails("0A000", "cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")
        self.server.prepare(gid, self.user, self.database.name, tx)
        self._forget()
        return Answer(told="PREPARE TRANSACTION")

    def settle(self, gid: str, commit: bool) -> Answer:
        """COMMIT PREPARED or ROLLBACK PREPARED."""
        what = ("COMMIT" if commit else "ROLLBACK") + " PREPARED"
        if self.failed:
            self.transaction()
        if self.block:
            raise fails("25001", f"{what} cannot run inside a transaction block")
        found = self._settling = self.server.take_hold(gid, self.user, self.database.name)
        try:
            self.server.surroundings.wait(lambda: True, None)  # a moment in which it is busy
        finally:  # also when its client has been killed meanwhile
            if self.alive:
                self._settling = None
                self.server.settle(found, commit)
        if not self.alive:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return Answer(told=what)

    def _commit(self) -> None:
        tx = self.tx
        if tx is not None:
            tx.check_late()
            self.server.commit(tx, self.settings.get("synchronous_commit") != "off")
        self._forget()

    def _fail(self) -> None:
        """A statement has failed: what it and its savepoint did is undone, and the block is to be rolled back."""
        if not self.block:
            self._roll_back()
            return
        self.failed = True
        if self.tx is not None and self.savepoints.marks:
            self.savepoints.undo_last()
        elif self.tx is not None:
            self.server.roll_back(self.tx)

    def _roll_back(self) -> None:
        if self.tx is not None:
            self.settings.undo()
            self.server.roll_back(self.tx)
        self._forget()

    def _forget(self) -> None:
        self.block = self.failed = False
        self.tx = None
        self.settings.end()
        self.savepoints.forget()
