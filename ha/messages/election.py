"""Election: who becomes primary, by itself or because an operator wants it."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ha.messages.numbers import Number
from txobserver.ids import Member, Position

HANDOVER_FEATURE: Final = "handover"
"""Of a node that hears how the clients of its primary were closed (``ClientsClosed``)."""
MOST_DRAINED: Final = 1e6
"""Seconds: no drain takes as long."""


class Probe(msgspec.Struct, array_like=True, tag=1):
    """A candidate asks a ready member how far its log goes."""

    generation: Number
    round: Number


class ProbeReply(msgspec.Struct, array_like=True, tag=2):
    """The position of the last event in the log of ``member``, synced or about to be."""

    generation: Number
    round: Number
    member: Member
    tail: Position


class Promoted(msgspec.Struct, array_like=True, tag=21):
    """The sender is primary of this generation: a node that knows a lower one reads the record."""

    generation: Number


class Outdated(msgspec.Struct, array_like=True, tag=26):
    """The message that came is of a lower generation than this one, so its sender reads the record."""

    generation: Number


class HandoverRequest(msgspec.Struct, array_like=True, tag=20):
    """An operator wants the sender to be primary: hand the lease over to it."""

    generation: Number
    session: Number


class ClientsClosed(msgspec.Struct, array_like=True, tag=70):
    """The primary that hands over has closed its ``clients``, ``drained`` seconds after it had begun to; ``undecided``:
    of so many the outcome of something may be unknown. ``stops``: it is about to end, and follows no other primary.
    Only to a node that knows ``HANDOVER_FEATURE``."""

    generation: Number
    clients: Number
    undecided: Number
    drained: Annotated[float, msgspec.Meta(ge=0, le=MOST_DRAINED)]
    stops: bool


class HandoverRefused(msgspec.Struct, array_like=True, tag=27):
    """The primary stays: the answer to a HandoverRequest that cannot be, with a sentence."""

    generation: Number
    reason: str
