"""How much clients may have open in transactions and branches at a primary, and how much of it one of them has.

Every node holds in memory what is open, so a transaction that passes one of these limits is aborted at once; its commit
says which limit that was (``txobserver.observer``).
"""

from __future__ import annotations

from typing import NamedTuple

from txobserver.ids import MAX_OPEN_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_EVENTS


class WorkLimits(NamedTuple):
    """Bytes are those of messages: properties and bodies.

    ``events``, ``bytes``: of one transaction or branch; ``client_bytes``: of all that one client has begun and that are
    open; ``open_bytes``: of all that are open at the primary, prepared branches included.
    """

    events: int = MAX_TRANSACTION_EVENTS
    bytes: int = MAX_TRANSACTION_BYTES
    client_bytes: int = MAX_OPEN_BYTES
    open_bytes: int = MAX_OPEN_BYTES


class OpenWork:
    """What is open, of one client or of all of them: the bytes of its messages, and its events."""

    def __init__(self) -> None:
        self.open_bytes = 0
        self.open_events = 0
