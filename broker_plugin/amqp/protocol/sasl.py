"""SASL PLAIN and AMQPLAIN (RabbitMQ, "Authentication mechanisms")."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple

from broker_plugin.embedded.field_table import read_table

MECHANISMS = "AMQPLAIN PLAIN"
HASHED = re.compile(r"\$sha256\$((?:[0-9a-f]{2}){16,})\$[0-9a-f]{64}")
"""A password as it may be kept: salt, and SHA-256 of salt and password"""


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


def allowed(users: Mapping[str, str], credentials: Credentials) -> bool:
    """Whether user and password are right. Takes the same time for every wrong password.

    ``users``: passwords, or what ``hashed`` makes of them.
    """
    expected = users.get(credentials.user)
    kept = HASHED.fullmatch(expected or "")
    given = hashed(credentials.password, kept[1]) if kept else credentials.password
    return hmac.compare_digest(given.encode(), (expected or "").encode()) and expected is not None


def hashed(password: str, salt: str) -> str:
    """The text that is kept instead of a password. ``salt``: at least 32 hexadecimal digits, drawn for each password.

    One round, as RabbitMQ's rabbit_password_hashing_sha256: the node's only thread checks each login, and after a
    take-over all clients log in at once. So a password that can be guessed can be found from its hash.
    """
    return f"$sha256${salt}${hashlib.sha256(bytes.fromhex(salt) + password.encode()).hexdigest()}"
