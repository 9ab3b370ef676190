"""Where a broker is."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class Address(NamedTuple):
    """As an AMQP URL says it."""

    port: int
    host: str = "127.0.0.1"
    vhost: str = "/"
    user: str = "guest"
    password: str = "guest"

    def __str__(self) -> str:
        return f"the broker at {self.host}:{self.port}, virtual host {self.vhost!r},"

    def of_job(self, number: int) -> Address:
        """The virtual host of one of several jobs."""
        return self._replace(vhost=f"{self.vhost.strip('/') or 'programs'}-{number}")


def address(url: str) -> Address:
    """From ``amqp://user:password@host:port/vhost``. ValueError for anything else."""
    parts = urlsplit(url)
    if parts.scheme != "amqp" or not parts.hostname:
        raise ValueError(f"{url} is no AMQP URL; say amqp://user:password@host:port/vhost")
    return Address(
        parts.port or 5672,
        parts.hostname,
        unquote(parts.path[1:]) or "/",
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
    )
