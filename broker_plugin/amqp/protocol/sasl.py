"""SASL PLAIN, AMQPLAIN and EXTERNAL (RabbitMQ, "Authentication mechanisms").

EXTERNAL is for a client whose certificate has been verified and has a name for its user; what it responds is not read.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_plugin.embedded.field_table import read_table

MECHANISMS = "AMQPLAIN PLAIN"
EXTERNAL = "EXTERNAL"


def mechanisms(certified: str | None) -> str:
    """Those that are offered to a client whose certificate says that it is this user; None: it has no such one."""
    return MECHANISMS if certified is None else f"{MECHANISMS} {EXTERNAL}"


class Credentials(NamedTuple):
    """What a client says that it is."""

    user: str
    password: str


def read_credentials(mechanism: str, response: bytes) -> Credentials | None:
    """The credentials in a client's response, or None if it holds none that can be read."""
    if mechanism == "PLAIN":
        return _plain(response)
    return _amqplain(response) if mechanism == "AMQPLAIN" else None


def _plain(response: bytes) -> Credentials | None:
    parts = response.split(b"\0")
    if len(parts) != 3:
        return None
    try:
        return Credentials(parts[1].decode(), parts[2].decode())
    except UnicodeDecodeError:
        return None


def _amqplain(response: bytes) -> Credentials | None:
    """A field table without the length in front of it."""
    try:
        _, table = read_table(len(response).to_bytes(4, "big") + response)
    except (ValueError, IndexError):
        return None
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if isinstance(user, str) and isinstance(password, str):
        return Credentials(user, password)
    return None
