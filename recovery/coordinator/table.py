"""Decisions in a table of the database: its own commit is the decision, and there is nothing to prepare in it.

Who works in one database and at a broker needs no log and no second phase in the database. The broker prepares, then
a row that says "commit" is inserted *in the database's own transaction*: it is there if and only if that has
committed. A recovery run that finds the broker's branch looks for the row. If there is none, the transaction may
still be on its way; so the run inserts "abort" under the same name. That waits for a transaction that has inserted
its row and not ended, and makes every later one fail: a decision is still a compare-and-set.

A database may hold several such tables, each in the schema of another application. Which one a role means is found
once, by its search path; from then on the table is named with its schema, and the names of transactions that hang on it
begin with its number in the database (its oid). So no run settles what is decided in another one, and a session
that changes its search path decides in the table that it began with.

    CREATE TABLE txha_decisions (name text PRIMARY KEY, committed boolean, resource text, branch text, at timestamptz)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import errors

from recovery.coordinator.decisions import ABORT_KEPT, Decision, DecisionRefused, DecisionUnknown
from recovery.coordinator.dsn import check_dsn
from recovery.coordinator.names import GlobalName, new_global_name, our_name
from recovery.coordinator.own_statements import DURABLE, Ticket, ask, ask_status, current_ticket, own_cursor
from recovery.coordinator.resources import Participant
from txobserver.xid import Xid

CREATE = """CREATE TABLE IF NOT EXISTS txha_decisions (
    name text PRIMARY KEY, committed boolean NOT NULL, resource text, branch text, at timestamptz NOT NULL DEFAULT now()
)"""
_FIND = """
SELECT to_hex(system_identifier), database.oid, found.oid, format('%%I.%%I', nspname, relname), relpersistence,
    (SELECT count(*) FROM pg_class AS every WHERE every.relname = found.relname AND every.relkind IN ('r', 'p'))
FROM pg_control_system(), pg_database AS database,
    pg_class AS found JOIN pg_namespace ON relnamespace = pg_namespace.oid
WHERE datname = current_database() AND found.oid = to_regclass(%s)
"""
_INSERT = "INSERT INTO {table} (name, committed, resource, branch) VALUES (%s, %s, %s, %s)"
_REMOVE = "DELETE FROM {table} WHERE name = ANY(%s) AND current_setting('transaction_isolation') = 'read committed'"
"""At other levels it would conflict with a recovery run that removes them, too, and with every other transaction that
decides in the table."""
_SELECT = "SELECT name, committed, extract(epoch FROM at), resource, branch FROM {table}"
TABLE = "txha_decisions"
"""Its name, in whatever schema it is."""
LOCK_SECONDS = 5
"""How long an abort waits for a transaction that has inserted its row and has not ended."""
_SETTINGS = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{seconds}s'; {durable}; "
"""At any other level to have waited for another decision is a serialization failure."""


def create_table(connection: psycopg.Connection[Any]) -> None:
    """Make the table if it is not there; the caller commits. Workers and recovery runs must be allowed to write to
    it."""
    connection.execute(CREATE)


class DecisionTable(NamedTuple):
    """One table of decisions, and no other that is called alike.

    ``whose`` begins the names of the transactions that hang on it: server, database and table, so that a copy of it has
    another one. ``earlier``: what earlier versions wrote instead, for every table of the database. ``name``: with its
    schema, as SQL has it. ``alone``: whether the database held no other table that is called so when it was found.
    """

    whose: str
    earlier: str
    name: str
    alone: bool

    def new_name(self) -> GlobalName:
        """For a transaction that begins now."""
        return new_global_name(self.whose)

    def in_sql(self, statement: str) -> bytes:
        """A statement about ``{table}``, to be executed with parameters."""
        return statement.replace("{table}", self.name.replace("%", "%%")).encode()


def find_table(connection: psycopg.Connection[Any], name: str = TABLE) -> DecisionTable:
    """The table that this connection finds under that name, by its search path if it is a name without a schema.

    Raises ValueError if there is none, or one that a crash may empty.
    """
    row = ask(connection, _FIND.encode(), name).fetchone()
    if row is None:
        raise ValueError(
            f'the table "{name}" does not exist in a schema of the search path: make it with create_table, or name '
            "the schema (options='-c search_path=…' in the DSN)"
        )
    server, database, table, qualified, persistence, count = row
    if persistence != "p":
        raise ValueError(f"{qualified} is temporary or unlogged, and may lose decisions: make it an ordinary table")
    return DecisionTable(f"{server}-{database:x}-{table:x}", f"{server}-{database}", qualified, count == 1)


def insert_commit(
    connection: psycopg.Connection[Any],
    table: DecisionTable,
    name: str,
    participant: Participant,
    finished: Sequence[str],
) -> Ticket:
    """In the transaction that is to be committed; rows of ``finished`` ones go with it at READ COMMITTED.

    Returns PostgreSQL's own number of it, when it began, and its age behind the insertion. Raises psycopg.Error.
    """
    if finished:
        ask(connection, table.in_sql(_REMOVE), list(finished))
    ask(connection, table.in_sql(_INSERT), name, True, participant.resource, participant.branch)
    ticket = current_ticket(connection)
    assert ticket.number, "a row was inserted"
    return ticket


class TableDecisions:
    """The decisions in one table, for recovery (``Decisions``).

    ``table``: its name; without a schema, the one that the search path leads to. Raises DecisionRefused, and
    ValueError for a DSN that cannot be.
    """

    def __init__(self, dsn: str, table: str = TABLE, **options: Any) -> None:
        check_dsn(dsn)
        self._dsn = dsn
        self._options = options
        with self._connect() as connection:
            try:
                self.table = find_table(connection, table)
            except ValueError as error:
                raise DecisionRefused(f"the decisions cannot be read: {error}") from None
        self.whose = self.table.whose

    @contextmanager
    def _connect(self) -> Iterator[psycopg.Connection[Any]]:
        """For one question. Raises DecisionRefused."""
        try:
            with psycopg.connect(self._dsn, autocommit=True, **self._options) as connection:
                yield connection
        except psycopg.Error as error:
            raise DecisionRefused(f"the decisions cannot be reached: {' '.join(str(error).split())}") from error

    def new_name(self) -> GlobalName:
        """For a transaction that begins now."""
        return self.table.new_name()

    def owns(self, xid: Xid) -> GlobalName | None:
        """The global transaction of a branch if it hangs on this table, or an earlier version may have meant that."""
        return our_name(xid, self.whose, self.table.earlier)

    def decide(self, name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        """Only to abort: a commit is the database's own. Raises DecisionRefused while the transaction is open."""
        assert not commit, "a commit is decided in the transaction itself"
        with self._connect() as connection:
            try:
                if name.startswith(f"{self.table.earlier}.") and not find_table(connection, self.table.name).alone:
                    return self._decided_by_an_earlier_version(name)
                _ask(connection, self.table.in_sql(f"{_INSERT} ON CONFLICT DO NOTHING"), name, False, None, None)
            except ValueError as error:
                raise DecisionRefused(str(error)) from None
            except errors.LockNotAvailable as error:
                raise DecisionRefused(f"{name} is still open in the database") from error
            except psycopg.Error as error:
                if connection.closed:
                    raise DecisionUnknown(str(error)) from error
                raise DecisionRefused(f"{name} is not decided: {error}") from error
        found = self.decision(name)
        return found is not None and found.commit

    def status(self, ticket: str) -> str | None:
        """What became of a transaction of this database, as ``ask_status`` has it. Raises DecisionRefused."""
        with self._connect() as connection:
            return ask_status(connection, ticket)

    def _decided_by_an_earlier_version(self, name: str) -> bool:
        """Which did not say in which table. Raises DecisionRefused if it is not decided in this one."""
        found = self.decision(name)
        if found is None:
            raise DecisionRefused(
                f"an earlier version began it, and did not say in which of the tables {TABLE} of the database it is "
                "decided: find out whose it is, and settle it with `txha dtx commit` or `txha dtx rollback`"
            )
        return found.commit

    def decision(self, name: str) -> Decision | None:
        """The decision that stands."""
        return self._select("WHERE name = %s", name).get(name)

    def unfinished(self) -> dict[str, Decision]:
        """Commits whose rows are still there. Aborts that can no longer matter are removed, now or next time."""
        aborted = "DELETE FROM {table} WHERE NOT committed AND at < now() - make_interval(secs => %s)"
        with self._connect() as connection, suppress(errors.LockNotAvailable):
            _ask(connection, self.table.in_sql(aborted), ABORT_KEPT)
        return self._select("WHERE committed")

    def _select(self, where: str, *values: Any) -> dict[str, Decision]:
        query = self.table.in_sql(f"{_SELECT} {where}")
        with self._connect() as connection:
            rows = _ask(connection, query, *values).fetchall()
        return {
            name: Decision(committed, float(at), (Participant(resource, branch),) if committed else ())
            for name, committed, at, resource, branch in rows
        }

    def finish(self, name: str) -> None:
        """Remove the row. Raises DecisionRefused, also while another session holds it."""
        with self._connect() as connection:
            try:
                _ask(connection, self.table.in_sql("DELETE FROM {table} WHERE name = %s AND committed"), name)
            except errors.LockNotAvailable as error:
                raise DecisionRefused("another session of the database holds it, and has not ended") from error


def _ask(connection: psycopg.Connection[Any], query: bytes, *values: Any) -> psycopg.Cursor[Any]:
    """One statement in a transaction of its own, with settings of its own, in one message.

    Nothing of them is left behind, so a pooler can give the connection to others; and one answer says all.
    """
    settings = _SETTINGS.format(seconds=LOCK_SECONDS, durable=DURABLE)
    cursor = own_cursor(connection)
    cursor.execute(settings.encode() + query, values)
    while cursor.nextset():
        continue
    return cursor
