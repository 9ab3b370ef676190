"""DSNs of PostgreSQL: looked at before anybody connects."""

from __future__ import annotations

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict


def check_dsn(dsn: str) -> None:
    """Raises ValueError. It tells nothing of the DSN: where that cannot be read, any part of it may be the password."""
    try:
        conninfo_to_dict(dsn)
    except (ProgrammingError, AttributeError):
        raise ValueError(
            "the DSN cannot be read: one is 'host=… dbname=…' with libpq's keywords, or postgresql://user@host/dbname, "
            "in which % is written %25"
        ) from None
