"""Outcomes: what is remembered of transactions that have a name, and for how long (PROTOCOL, "DTX")."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from txobserver.xid import Xid


class Outcome(IntEnum):
    """What a question for an outcome is answered with. The numbers are those of ``dtx.outcome`` on the wire."""

    UNKNOWN = 0
    """Never heard of, as far as can be known."""
    PENDING = 1
    """Something of it is on its way to the commit point: ask again."""
    COMMITTED = 2
    ROLLED_BACK = 3
    HEURISTICALLY_COMMITTED = 4
    HEURISTICALLY_ROLLED_BACK = 5
    MIXED = 6
    EXPIRED = 7
    """Forgotten by age or by number, or never heard of: outcomes of its kind have been forgotten."""
    PREPARED = 8
    ACTIVE = 9
    """Begun, and not closed."""


class PreparedBranch(msgspec.Struct, frozen=True):
    """A branch that is prepared. ``generation`` is the one that it began in, ``prepared_ms`` milliseconds since 1970.

    ``enqueues``: messages for each queue. ``locked``: the messages that it dequeues, each (place, replication id).
    """

    xid: Xid
    tx: int
    generation: int
    prepared_ms: int
    enqueues: dict[int, int]
    locked: dict[int, list[tuple[int, int]]]
