"""Calls: what the initiator of a cluster call, the nodes that run it and the primary's desk say to each other.

``id`` names a call; its initiator drew it. Only nodes that name the feature ``calls`` are sent any of these.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from ha.messages.numbers import Number
from txobserver.calls import ID_BYTES, CallMark
from txobserver.ids import Member

CallId = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]


class TicketAsk(msgspec.Struct, array_like=True, tag=28):
    """The initiator asks for the ticket: one action is initiated at a time."""

    generation: Number
    id: CallId


class TicketGranted(msgspec.Struct, array_like=True, tag=29):
    """The ticket ``number`` is yours. It names no number of a call; run all calls up to ``through`` first."""

    generation: Number
    id: CallId
    number: Number
    through: Number


class CallRefused(msgspec.Struct, array_like=True, tag=30):
    """No ticket is given, or a record is not appended, for this reason. Whether one was before is not said."""

    generation: Number
    id: CallId
    reason: str


class CallAppend(msgspec.Struct, array_like=True, tag=31):
    """Append the record of this call, which is initiated with ticket ``number``."""

    generation: Number
    id: CallId
    number: Number
    operation: str
    version: Number
    name: str
    arguments: bytes
    created_ms: Number


class TicketReturned(msgspec.Struct, array_like=True, tag=32):
    """The initiator needs the ticket no more, if it has it."""

    generation: Number
    id: CallId


class SettleAsk(msgspec.Struct, array_like=True, tag=33):
    """The initiator does not know what became of its call: nothing is appended for it from here on."""

    generation: Number
    id: CallId


class SettleUpTo(msgspec.Struct, array_like=True, tag=34):
    """A record of the call stands in the stream up to ``sequence``, or never will."""

    generation: Number
    id: CallId
    sequence: Number


class ControlAsk(msgspec.Struct, array_like=True, tag=35):
    """Append the record of a skip, a fast-forward (``node``, ``tnx_id``) or a reset (neither)."""

    generation: Number
    id: CallId
    operation: str
    node: str
    tnx_id: Number


class ControlDone(msgspec.Struct, array_like=True, tag=36):
    """The record has passed the commit point."""

    generation: Number
    id: CallId


class CursorReport(msgspec.Struct, array_like=True, tag=37):
    """How far ``member`` has durably run the calls; the call ``failing`` fails there for this reason, if any does.

    0 with a reason: what the node has begun and is to undo fails.
    """

    generation: Number
    member: Member
    cursor: CallMark
    failing: Number = 0
    reason: str = ""


class CallAsk(msgspec.Struct, array_like=True, tag=38):
    """Which nodes have this call, whose record has this number and names these members?"""

    generation: Number
    id: CallId
    tnx_id: Number
    members: list[str]


class CallStanding(msgspec.Struct, array_like=True, tag=39):
    """``has``: the members that have dealt with the call, ``behind``: those that count for it and have not yet."""

    generation: Number
    id: CallId
    tnx_id: Number
    has: list[Member]
    behind: list[Member]


class CursorsAsk(msgspec.Struct, array_like=True, tag=41):
    """How far is each node? ``id``: of the question."""

    generation: Number
    id: CallId


class NodeCursor(NamedTuple):
    """The last report of a member; None where it has not reported to this primary. ``counts``: it is in the ready
    set."""

    member: Member
    counts: bool
    cursor: CallMark | None
    failing: int
    reason: str


class CursorsTold(msgspec.Struct, array_like=True, tag=42):
    """The answer: of each member that is in the ready set, or has reported to this primary."""

    generation: Number
    id: CallId
    cursors: list[NodeCursor]


DeskRequest = TicketAsk | CallAppend | TicketReturned | SettleAsk | ControlAsk | CursorReport | CallAsk | CursorsAsk
"""What a node says to the primary."""
DeskAnswer = TicketGranted | CallRefused | SettleUpTo | ControlDone | CallStanding | CursorsTold
"""What the primary says to a node."""
