"""Statements of a coordinator's own, on a connection that is the application's as well.

The application may have rows as dictionaries or cursors of another kind there, and a pooler may give each transaction
another server. So each statement has a cursor of its own: rows are tuples, values stand in the text, and nothing is
prepared at the server.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import TupleRow, tuple_row

TICKET = b"""SELECT pg_current_xact_id_if_assigned()::text, pg_is_in_recovery(), current_setting('txha.branch', true),
    current_setting('role')"""
"""PostgreSQL's own number of the present transaction, if it has one; whether this is a standby; the mark; the role."""
ROLE = b"SHOW role"
"""The role that was chosen, or none. It takes no snapshot."""
OWNER = b"SELECT set_config('role', %s, true)"
"""Until the end of the transaction."""
MARK = b"SET LOCAL txha.branch = %s"
"""Marks the present transaction. The mark is gone with it: who finds it has not been ended by SQL in between.

It is a setting because nothing else says this and lets the application's first statement still choose an isolation
level: a query would have taken the snapshot.
"""
COMMIT_MARKED = b"SELECT 1 / (coalesce(current_setting('txha.branch', true), '') = %s)::int; COMMIT"
"""In one message. Without the mark the division by zero stands in front of the COMMIT."""
DURABLE = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
"""Else PostgreSQL tells a commit that its crash takes back. Other settings than off are on disk here, and stay."""
_MICROSECONDS = b"(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint"
BEGAN = b"SELECT " + _MICROSECONDS
"""When the present transaction began, which no other one of this session did: microseconds, by the server's clock.

It takes a snapshot; and unlike the mark it stays when the savepoint goes in which it was asked for.
"""
_NUMBER = (
    b"SELECT pg_current_xact_id_if_assigned()::text, "
    + _MICROSECONDS
    + b", extract(epoch FROM clock_timestamp() - transaction_timestamp())::float8"
)
ENDED_BY_SQL = (
    "transaction was ended in the middle, by SQL (COMMIT, ROLLBACK, PREPARE TRANSACTION): what that did stands, and "
    "nothing else of this transaction does"
)
"""Behind whose it is."""
COMMITTED, ABORTED, FUTURE = "committed", "aborted", "in the future"


class _Text(Loader):
    """Text, also of a database in SQL_ASCII, where psycopg has bytes."""

    def load(self, data: Buffer) -> str:
        """As it was written there."""
        return bytes(data).decode(errors="surrogateescape")


def own_cursor(connection: psycopg.Connection[Any]) -> psycopg.ClientCursor[TupleRow]:
    """Whose rows are tuples, and whose text is text, whatever the connection's own are."""
    cursor = psycopg.ClientCursor(connection, row_factory=tuple_row)
    if connection.info.encoding == "ascii":
        for kind in ("text", "name", '"char"'):
            cursor.adapters.register_loader(kind, _Text)
    return cursor


def ask(connection: psycopg.Connection[Any], query: bytes, *values: Any) -> psycopg.Cursor[TupleRow]:
    """Carry a query out, in the present transaction; the cursor with its answer. Raises psycopg.Error."""
    return own_cursor(connection).execute(query, values or None)


def make_durable(connection: psycopg.Connection[Any]) -> None:
    """The present transaction will be synced to the disk when it is committed. Raises psycopg.Error."""
    ask(connection, DURABLE.encode())


def in_one_message(connection: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
    """What is sent in it goes on the way at once, and is answered at its end. Where libpq cannot, each by itself."""
    return connection.pipeline() if psycopg.capabilities.has_pipeline() else nullcontext()


class Ticket(NamedTuple):
    """PostgreSQL's own number of a transaction, empty if it has written nothing; and when it began, as BEGAN has it.

    ``age``: how long ago that was, in seconds, by the server's clock.
    """

    number: str
    began: int
    age: float


def current_ticket(connection: psycopg.Connection[Any]) -> Ticket:
    """Of the present transaction. Raises psycopg.Error."""
    [(number, began, age)] = ask(connection, _NUMBER).fetchall()
    return Ticket(number or "", began, age)


def ask_status(connection: psycopg.Connection[Any], ticket: str) -> str | None:
    """What became of the transaction with this number: COMMITTED, ABORTED, "in progress"; None: not known any more.

    FUTURE: this server has given no such number; it was restored from a backup, or lacks the end of another one. Called
    in no transaction. Raises psycopg.Error.
    """
    try:
        row = ask(connection, b"SELECT pg_xact_status(%s::xid8)", ticket).fetchone()
    except errors.InvalidParameterValue:
        return FUTURE
    finally:
        if not connection.closed:
            connection.rollback()
    return None if row is None else row[0]
