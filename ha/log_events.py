"""What a state machine has to tell people: typed events with plain fields. Sentences are made where they are printed.

``reason`` is a sentence that goes to a peer or a client as well. Transactions are told by their ids.
"""

from __future__ import annotations

from typing import NamedTuple


class StateChanged(NamedTuple):
    """This node is in another state now."""

    state: str


class LinkSilent(NamedTuple):
    """Nothing has come from a peer for so many seconds; its connections are closed."""

    peer: str
    seconds: float


class FollowingPrimary(NamedTuple):
    """The record names this primary."""

    primary: str


class PrimarySilent(NamedTuple):
    """Nothing has come from the primary for too long; this node asks to be attached again."""

    primary: str


class RefusedByPrimary(NamedTuple):
    """The primary refuses what this node has asked for."""

    primary: str
    reason: str


class Detached(NamedTuple):
    """What the primary sent cannot be: this backup leaves it, and asks again later."""

    primary: str
    reason: str


class EventsDiscarded(NamedTuple):
    """This node's log is cut after the sequence ``last``: the primary does not have what stood behind it."""

    last: int


class ResyncBegun(NamedTuple):
    """This node's queues are copied from the primary."""


class OverwritingRefused(NamedTuple):
    """This store stays as it is until an operator decides."""

    reason: str


class RecordRefused(NamedTuple):
    """The coordination record cannot be right; this node waits for an operator."""

    reason: str


class NoMember(NamedTuple):
    """This node, or its store, does not belong to the cluster, as the record says."""

    reason: str


class MembersChanged(NamedTuple):
    """An operator has changed the members, by the change of this ``number``: ``change`` says how, ``members`` who they
    are now."""

    number: int
    change: str
    members: str


class StoreFailed(NamedTuple):
    """The store failed; the node will end."""

    reason: str


class SteppingDown(NamedTuple):
    """This node is no longer primary."""

    reason: str


class HandingOver(NamedTuple):
    """The primary begins nothing more of its clients, and closes them, for a ``successor``; an empty one is any."""

    successor: str
    reason: str


class ClientsHandedOver(NamedTuple):
    """It has closed so many ``clients``, ``seconds`` after that; ``undecided``: some outcome is unknown to so many."""

    clients: int
    undecided: int
    seconds: float


class SuccessorRefused(NamedTuple):
    """A backup has asked to take over, and cannot."""

    backup: str
    reason: str


class BackupAttached(NamedTuple):
    """Its log is the same up to ``common``; it counts when it is durable up to ``guard``."""

    backup: str
    common: int
    guard: int


class BackupResyncs(NamedTuple):
    """Its log does not lead to the primary's: the queues are copied to it."""

    backup: str


class BackupReady(NamedTuple):
    """It is in the ready set now."""

    backup: str


class OutOfReadySet(NamedTuple):
    """It was in the ready set."""

    member: str


class BackupSilent(NamedTuple):
    """It has owed an acknowledgement for too long."""

    backup: str


class ClientsSlowed(NamedTuple):
    """A joiner lacks so many events and does not catch up with the load; the clients are slowed until it has."""

    joiner: str
    lacking: int


class JoinerTooSlow(NamedTuple):
    """A joiner was without progress for so many ``seconds``, more than half of ``most``, and does not count so."""

    joiner: str
    seconds: float
    most: float


class BackupLeaves(NamedTuple):
    """It leaves by itself."""

    backup: str
    reason: str


class TransactionCancelled(NamedTuple):
    """A backup cannot prepare it; it is rolled back everywhere."""

    transaction: int
    backup: str
    reason: str


class TransactionAborted(NamedTuple):
    """A new primary has found it without a decision."""

    transaction: int


class BranchesPrepared(NamedTuple):
    """A new primary has found so many prepared branches, which wait for their coordinators."""

    branches: int


class ForcingOutdated(NamedTuple):
    """The loss of data was accepted for another version of the record than there is now."""

    accepted: int
    version: int


class GenerationsUsedUp(NamedTuple):
    """There can be no other primary."""


class NobodyTakesOver(NamedTuple):
    """The record has stood still for so many seconds; this node waits for the members before it, or stands."""

    seconds: float
    members: tuple[str, ...]
    stands: bool


class TooBusyToStand(NamedTuple):
    """The record has stood still, and this node has looked at its clock in longer steps than this, in seconds."""

    longest_step: float


LogEvent = (
    StateChanged
    | LinkSilent
    | FollowingPrimary
    | PrimarySilent
    | RefusedByPrimary
    | Detached
    | EventsDiscarded
    | ResyncBegun
    | OverwritingRefused
    | RecordRefused
    | NoMember
    | MembersChanged
    | StoreFailed
    | SteppingDown
    | HandingOver
    | ClientsHandedOver
    | SuccessorRefused
    | BackupAttached
    | BackupResyncs
    | BackupReady
    | OutOfReadySet
    | BackupSilent
    | ClientsSlowed
    | JoinerTooSlow
    | BackupLeaves
    | TransactionCancelled
    | TransactionAborted
    | BranchesPrepared
    | ForcingOutdated
    | GenerationsUsedUp
    | NobodyTakesOver
    | TooBusyToStand
)
