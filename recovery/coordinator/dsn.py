"""DSNs of PostgreSQL: looked at before the coordinator connects."""

from __future__ import annotations

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict


def check_dsn(dsn: str) -> None:
    """Raises ValueError. It tells nothing of the DSN: where that cannot be read, any part of it may be the password.

    So it may where an url was cut at a sign of the password: psycopg would tell of a host or port that cannot be.
    """
    try:
        found = conninfo_to_dict(dsn)
        dsn.encode()
        if not (_may_be_hosts(str(found.get("host", ""))) and _may_be_ports(str(found.get("port", "")))):
            raise ProgrammingError
    except (ProgrammingError, AttributeError, UnicodeError):
        raise ValueError(
            "the DSN cannot be read: one is 'host=… dbname=…' with libpq's keywords, or postgresql://user@host/dbname, "
            "in which %, @, : and / of a name or password are written %25, %40, %3A and %2F"
        ) from None


def _may_be_hosts(listed: str) -> bool:
    """A directory, or an @ in front of an abstract socket's name, is a host, too.

    Raises UnicodeError for one that no name server could be asked for, as psycopg would when it connects.
    """
    for each in listed.split(","):
        if not each.startswith(("/", "@")):
            each.encode("idna")
            if "@" in each:
                return False
    return True


def _may_be_ports(listed: str) -> bool:
    return all(each.strip().isdecimal() or not each.strip() for each in listed.split(","))
