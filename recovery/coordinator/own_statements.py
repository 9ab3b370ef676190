"""Statements of a coordinator's own, on a connection that is the application's as well.

The application may have rows as dictionaries or cursors of another kind there, and a pooler may give each transaction
another server. So each statement has a cursor of its own: rows are tuples, values stand in the text, and nothing is
prepared at the server.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors
from psycopg.rows import TupleRow, tuple_row

TICKET = b"SELECT pg_current_xact_id_if_assigned()::text, pg_is_in_recovery()"
"""PostgreSQL's own number of the present transaction, if it has one; and whether this is a standby."""
COMMITTED, ABORTED, FUTURE = "committed", "aborted", "in the future"


def ask(connection: psycopg.Connection[Any], query: bytes, *values: Any) -> psycopg.Cursor[TupleRow]:
    """Carry a query out, in the present transaction; the cursor with its answer. Raises psycopg.Error."""
    return psycopg.ClientCursor(connection, row_factory=tuple_row).execute(query, values or None)


def current_ticket(connection: psycopg.Connection[Any]) -> str | None:
    """PostgreSQL's own number of the present transaction; None if it has written nothing. Raises psycopg.Error."""
    row = ask(connection, TICKET).fetchone()
    return None if row is None or row[0] is None else str(row[0])


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
