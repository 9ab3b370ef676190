"""Stream: the events, how far they count, and the votes of backups."""

from __future__ import annotations

import msgspec

from ha.messages.numbers import Number


class Entries(msgspec.Struct, array_like=True, tag=6):
    """One frame of the stream, and the commit point."""

    generation: Number
    session: Number
    commit: Number
    frame: bytes


class Commit(msgspec.Struct, array_like=True, tag=7):
    """The commit point, when nothing else carries it."""

    generation: Number
    session: Number
    commit: Number


class Ack(msgspec.Struct, array_like=True, tag=8):
    """The backup's log is durable up to ``sequence``. Made from an Acknowledge only."""

    generation: Number
    session: Number
    sequence: Number


class Cancel(msgspec.Struct, array_like=True, tag=9):
    """The backup cannot prepare this transaction (prepare: fail)."""

    generation: Number
    session: Number
    tx: int
    reason: str
