"""Attaching: how a backup begins to follow a primary, shows that it is alive, becomes ready, and ends."""

from __future__ import annotations

import msgspec

from ha.messages.numbers import Number
from txobserver.ids import Member, Position


class Join(msgspec.Struct, array_like=True, tag=3):
    """A backup asks the primary to be attached, and says truthfully what its log holds."""

    generation: Number
    session: Number
    member: Member
    history: list[Position]
    tail: Position
    applied: Number
    resyncing: bool


class AttachmentRefused(msgspec.Struct, array_like=True, tag=4):
    """This attachment has ended, or cannot be; ``session`` is its number."""

    generation: Number
    session: Number
    reason: str


class Follow(msgspec.Struct, array_like=True, tag=5):
    """Attached: cut your log after ``keep``; entries follow from there."""

    generation: Number
    session: Number
    keep: Number
    commit: Number


class Granted(msgspec.Struct, array_like=True, tag=11):
    """The backup is a member of the ready set."""

    generation: Number
    session: Number


class Progress(msgspec.Struct, array_like=True, tag=23):
    """A backup's word that it is alive: it has taken so many parts of a snapshot in this session.

    ``full``: its checkpoints are so far behind that it must be sent nothing more for now.
    """

    generation: Number
    session: Number
    taken: Number
    full: bool


class Leave(msgspec.Struct, array_like=True, tag=10):
    """The backup's own store is the reason: take it out of the ready set."""

    generation: Number
    session: Number
    reason: str
