"""Urls of brokers: checked before a client connects, and shown without their passwords."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from recovery.dtx.errors import ProgrammingError

READS = "amqp://user:password@host:port/vhost, in which a / of a name or password is written %2F"
T = TypeVar("T")
_BETWEEN = re.compile(r"\s*,\s*(?=amqps?://)")
_SECRET = re.compile(r"^([^:@/]+://)?([^:]*):(?!//).*@", re.DOTALL)
_NO_PORT = re.compile(r"^([^:@/]+://)?([^:@/\[\]]+):(?!//)(?![0-9]{0,5}(?:[/?#]|$))[^@]*$", re.DOTALL)


def urls_in(listed: str) -> list[str]:
    """The urls of a list with commas. What is none stays where it is, so that ``checked_hosts`` finds it."""
    return _BETWEEN.split(listed.strip())


def checked_hosts(hosts: Sequence[T]) -> Sequence[T]:
    """The same. Raises ProgrammingError for an url that none can be, TypeError without any, or for no url in its place.

    pika's parameters, and whatever else is an object, are left to the client that they are made for.
    """
    if not hosts:
        raise TypeError("a host is needed at least")
    for host in hosts:
        if isinstance(host, str):
            _check_url(host)
        elif host is None or isinstance(host, int | float | Sequence):
            raise TypeError(f"each host is an url of its own, as in (*urls), and not {type(host).__name__}")
    return hosts


def _check_url(url: str) -> None:
    """The sentence tells no password."""
    try:
        parts = urlsplit(url.strip())
        whole = parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and parts.port != 0 and "," not in parts.path
    except ValueError:  # a port that cannot be
        whole = False
    if not whole:
        raise ProgrammingError(f"{without_password(url)!r} is no url of a broker: one reads {READS}")


def without_password(url: str) -> str:
    """As it may be shown: of what stands before the last @ only scheme and user, for a password may hold any sign.

    So may a user (``me@corp``), but the first : ends it. Without an @, what stands where a port would, and is none, is
    taken for a password.
    """
    return _NO_PORT.sub(r"\1\2:…", _SECRET.sub(r"\1\2@", url))


def login_refused(address: str, user: str) -> str:
    """Of a host that knows no such user, or whose user has another password."""
    return f"{address} refuses the login of user {user!r}: give the right user and password in its url"
