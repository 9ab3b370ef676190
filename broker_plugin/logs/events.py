"""Events of a node's log that do not come from its core (those: ``ha.log_events``): typed, with plain fields.

``reason`` is the sentence of an error, as it was raised.
"""

from __future__ import annotations

from typing import NamedTuple

from ha.log_events import LogEvent


class NodeStarted(NamedTuple):
    """A node runs. ``core``: compiled or pure."""

    member: str
    position: str
    core: str


class InvariantsChecked(NamedTuple):
    """Invariants are checked after each turn, as this ``variable`` of the environment asks: the node is slow."""

    variable: str


class NodeFailed(NamedTuple):
    """Why the node ends."""

    reason: str


class AllReady(NamedTuple):
    """As many nodes are ready as there are."""

    nodes: int


class TooFewReady(NamedTuple):
    """Fewer nodes are ready than there are."""

    ready: int
    nodes: int
    min_ready: int


class OperatorDecides(NamedTuple):
    """An operator decides a branch without its coordinator."""

    branch: str
    commit: bool


class FilesLimited(NamedTuple):
    """The limit of open files could not be raised."""

    limit: int
    reason: str


class ConnectionsRefused(NamedTuple):
    """``kind`` of connections are refused: ``limit`` descriptors are in use, or soon will be."""

    kind: str
    limit: int


class PeerRefused(NamedTuple):
    """A connection with another node is closed; ``peer`` is empty before it has said its name."""

    peer: str
    reason: str


class PeerMute(NamedTuple):
    """A peer takes connections and does not greet within so many seconds."""

    peer: str
    seconds: float


class ReaderRefused(NamedTuple):
    """A connection with a reader of the log is closed."""

    reason: str


class ReaderUnanswered(NamedTuple):
    """The log could not be read for a reader, and the node goes on. ``kind``: of the error."""

    kind: str
    reason: str


class LogUnread(NamedTuple):
    """The log could not be read for a backup."""

    reason: str


class RecordUnread(NamedTuple):
    """The coordination record could not be read or changed."""

    reason: str


class OperatorGone(NamedTuple):
    """A connection of an operator has ended by an error."""

    reason: str


class UnexpectedError(NamedTuple):
    """An error that is no client's own fault: the node ends. ``kind``: of the error."""

    kind: str
    reason: str


class LoopError(NamedTuple):
    """What the event loop reports."""

    reason: str


NodeEvent = (
    NodeStarted
    | InvariantsChecked
    | NodeFailed
    | AllReady
    | TooFewReady
    | OperatorDecides
    | FilesLimited
    | ConnectionsRefused
    | PeerRefused
    | PeerMute
    | ReaderRefused
    | ReaderUnanswered
    | LogUnread
    | RecordUnread
    | OperatorGone
    | UnexpectedError
    | LoopError
)

Event = LogEvent | NodeEvent
