"""An initiation: one call on its way from being asked for to its record, at the node that it was asked of."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ha.calls.answers import Answered
from ha.messages.calls import CallAppend
from txobserver.calls import CallIntent


class Phase(Enum):
    """``BEGUN`` waits for a ticket, ``GRANTED`` has it and catches up, ``AT_WORK``: the node's hands are in it.

    ``RAN``: the action has succeeded here, ``SENT``: the primary has been asked to append the record. ``FAILED``: the
    action has not succeeded, and nothing was sent. ``LOST``: the ticket has ended, and what became of the record is not
    known.
    """

    BEGUN = "begun"
    GRANTED = "granted"
    AT_WORK = "at work"
    RAN = "ran"
    SENT = "sent"
    FAILED = "failed"
    LOST = "lost"


class NewCall(NamedTuple):
    """What an operator asks for, under an id that was drawn for it. ``created_ms``: milliseconds since 1970."""

    id: bytes
    operation: str
    version: int
    name: str
    arguments: bytes
    created_ms: int


class Attachment(NamedTuple):
    """Where a ticket counts: of one generation's primary, over one attachment to it."""

    generation: int
    session: int


class Initiation:
    """``need``, ``deadline`` and ``done`` as ``CallAnswers.wait`` has them; ``done`` None: it has been answered."""

    def __init__(self, call: NewCall, need: int, deadline: float, done: Answered) -> None:
        self.call = call
        self.need = need
        self.deadline = deadline
        self.done: Answered | None = done
        self.phase = Phase.BEGUN
        self.at: Attachment | None = None
        self.ticket = 0
        self.through = 0
        self.after = 0
        self.since = 0.0
        self.reason = ""

    def append(self, generation: int) -> CallAppend:
        """What asks the primary to append the record."""
        call = self.call
        of_call = (call.operation, call.version, call.name, call.arguments, call.created_ms)
        return CallAppend(generation, call.id, self.ticket, *of_call)

    def intent(self, before: bytes, after: int) -> CallIntent:
        """What the node keeps before it runs the action."""
        return CallIntent(self.call.id, self.call.operation, self.call.version, self.call.name, before, after)
