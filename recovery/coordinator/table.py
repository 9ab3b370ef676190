"""Decisions in a table of the database: its own commit is the decision, and there is nothing to prepare in it.

Who works in one database and at a broker needs no log and no second phase in the database. The broker prepares, then
a row that says "commit" is inserted *in the database's own transaction*: it is there if and only if that has
committed. A recovery run that finds the broker's branch looks for the row. If there is none, the transaction may
still be on its way; so the run inserts "abort" under the same name. That waits for a transaction that has inserted
its row and not ended, and makes every later one fail: a decision is still a compare-and-set.

    CREATE TABLE txha_decisions (name text PRIMARY KEY, committed boolean, resource text, branch text, at timestamptz)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors

from recovery.coordinator.decisions import ABORT_KEPT, Decision, DecisionRefused, DecisionUnknown
from recovery.coordinator.resources import Participant

CREATE = """CREATE TABLE IF NOT EXISTS txha_decisions (
    name text PRIMARY KEY, committed boolean NOT NULL, resource text, branch text, at timestamptz NOT NULL DEFAULT now()
)"""
_DURABLE = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
"""Else PostgreSQL tells a commit that its crash takes back. Other settings than off are on disk here, and stay."""
_INSERT = "INSERT INTO txha_decisions (name, committed, resource, branch) VALUES (%s, %s, %s, %s)"
_WHOSE = (
    "SELECT to_hex(system_identifier), oid FROM pg_control_system(), pg_database WHERE datname = current_database()"
)
LOCK_SECONDS = 5
"""How long an abort waits for a transaction that has inserted its row and has not ended."""
_SETTINGS = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{seconds}s'; {durable}; "
"""At any other level to have waited for another decision is a serialization failure."""


def create_table(connection: psycopg.Connection[Any]) -> None:
    """Make the table if it is not there; the caller commits. Whoever works and whoever recovers must write to it."""
    connection.execute(CREATE)


def whose(connection: psycopg.Connection[Any]) -> str:
    """The id of this database's decisions: server and database, so that a copy of it has another one."""
    row = connection.execute(_WHOSE).fetchone()
    assert row is not None
    return f"{row[0]}-{row[1]}"


def insert_commit(
    connection: psycopg.Connection[Any], name: str, participant: Participant, finished: Sequence[str]
) -> None:
    """In the transaction that is to be committed; rows of ``finished`` ones go with it. Raises psycopg.Error.

    The transaction is synced to the disk when it is committed, whatever was set.
    """
    connection.execute(_DURABLE)
    connection.execute("DELETE FROM txha_decisions WHERE name = ANY(%s)", [list(finished)])
    connection.execute(_INSERT, [name, True, participant.resource, participant.branch])


class TableDecisions:
    """The decisions in one database, for recovery (recovery.coordinator.decisions.Decisions)."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self._dsn = dsn
        self._options = options
        with self._connect() as connection:
            self.whose = whose(connection)

    @contextmanager
    def _connect(self) -> Iterator[psycopg.Connection[Any]]:
        """For one question. Raises DecisionRefused."""
        try:
            with psycopg.connect(self._dsn, autocommit=True, **self._options) as connection:
                yield connection
        except psycopg.Error as error:
            raise DecisionRefused(f"the decisions cannot be reached: {error}") from error

    def decide(self, name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        """Only to abort: a commit is the database's own. Raises DecisionRefused while the transaction is open."""
        assert not commit, "a commit is decided in the transaction itself"
        with self._connect() as connection:
            try:
                _ask(connection, f"{_INSERT} ON CONFLICT DO NOTHING", name, False, None, None)
            except errors.LockNotAvailable as error:
                raise DecisionRefused(f"{name} is still open in the database") from error
            except psycopg.Error as error:
                if connection.closed:
                    raise DecisionUnknown(str(error)) from error
                raise DecisionRefused(f"{name} is not decided: {error}") from error
        found = self.decision(name)
        return found is not None and found.commit

    def decision(self, name: str) -> Decision | None:
        """The decision that stands."""
        return self._select("WHERE name = %s", name).get(name)

    def unfinished(self) -> dict[str, Decision]:
        """Commits whose rows are still there. Aborts that nobody can ask for any more are removed."""
        with self._connect() as connection:
            aborted = "DELETE FROM txha_decisions WHERE NOT committed AND at < now() - make_interval(secs => %s)"
            _ask(connection, aborted, ABORT_KEPT)
        return self._select("WHERE committed")

    def _select(self, where: str, *values: Any) -> dict[str, Decision]:
        query = f"SELECT name, committed, extract(epoch FROM at), resource, branch FROM txha_decisions {where}"
        with self._connect() as connection:
            rows = _ask(connection, query, *values).fetchall()
        return {
            name: Decision(committed, float(at), (Participant(resource, branch),) if committed else ())
            for name, committed, at, resource, branch in rows
        }

    def finish(self, name: str) -> None:
        """Remove the row."""
        with self._connect() as connection:
            _ask(connection, "DELETE FROM txha_decisions WHERE name = %s AND committed", name)


def _ask(connection: psycopg.Connection[Any], query: str, *values: Any) -> psycopg.Cursor[Any]:
    """One statement in a transaction of its own, with settings of its own, in one message.

    Nothing of them is left behind, so a pooler can give the connection to others; and one answer says all.
    """
    settings = _SETTINGS.format(seconds=LOCK_SECONDS, durable=_DURABLE)
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(f"{settings}{query}".encode(), values)
    while cursor.nextset():
        continue
    return cursor
