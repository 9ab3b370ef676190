"""What a plan is made from: facts about stores, the coordination record, and what coordinators and databases say."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from ha.catchup.history import common_sequence
from ha.membership.record import Record
from txobserver.ids import Member, Position
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Global, Xid


class StoreCondition(StrEnum):
    """What can be done with a node's store."""

    WHOLE = "whole"
    """The node would start with it."""
    DAMAGED = "damaged"
    RESYNCING = "resyncing"
    """It was being overwritten by a primary's copy, and can only be copied again."""
    EMPTY = "empty"
    MISSING = "missing"
    """Not there, or not given."""
    FOREIGN = "foreign"
    """Of another cluster, or of another node."""


class SurveyedStore(msgspec.Struct, frozen=True, kw_only=True):
    """One node's store.

    ``tail``: the last event that its log holds whole, from its checkpoint (``applied``) on. ``history``: for each
    generation the position of its first event, or of the first that is known. ``complete``: nothing that the node ever
    wrote stands behind ``tail``. ``cluster_id``: the identity of its cluster; empty if nothing says it.
    """

    node: str
    condition: StoreCondition
    why: str = ""
    member: Member | None = None
    tail: Position = Position(0, 0)
    applied: Position = Position(0, 0)
    history: tuple[Position, ...] = ()
    complete: bool = True
    cluster_id: str = ""
    has_data: bool = False
    """Of a store of another cluster: whether anything was ever written to it"""
    rebuilt: bool = False
    """`txha rebuild` made it, and it has had nothing from a primary since: the store before it is lost, unseen"""
    log_alone: bool = False
    """The node cannot start with its queue state, and its log is whole from the first event of all on"""
    unread: tuple[int, int] | None = None
    """The first and the last event of the log that was not read: its checkpoint stands behind them"""
    rotten: str = ""
    """A sentence on damage in that part of the log, without which the node starts"""
    may_change_members: bool = False
    """The flag `members` is raised in what it holds: from then on nodes may have been added that no file lists"""

    def holds(self, position: Position) -> bool:
        """Whether this event is in what the store leads to.

        The events of a generation are made by one primary, and a node that has one of them has all that came before it.
        """
        return position.sequence <= self.tail.sequence and self.generation_at(position.sequence) == position.generation

    def lacks(self, other: SurveyedStore) -> bool:
        """Whether the two logs part before the end of the other's checkpoint: a node refuses to be overwritten so."""
        common = common_sequence(self.history, self.tail.sequence, other.history, other.tail.sequence)
        return common < other.applied.sequence

    def contains(self, other: SurveyedStore) -> bool:
        """Whether the other's whole log is in what this store leads to."""
        return self.holds(other.tail) and not self.lacks(other)

    def generation_at(self, sequence: int) -> int:
        """The generation of the event with this sequence; 0 if that is not known."""
        return max((start.generation for start in self.history if start.sequence <= sequence), default=0)


class RecordState(StrEnum):
    """What the coordination store says."""

    INTACT = "intact"
    GONE = "gone"
    DAMAGED = "damaged"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster. ``nodes``: the names of all its nodes; None if they are not known.

    ``cluster_id``: its identity, as the record says, or else the stores; empty if it was founded before there were any.
    ``picked``: the node whose store an operator has said to count, where stores exclude each other; empty: none.
    """

    cluster: str
    stores: tuple[SurveyedStore, ...]
    record: Record | None
    record_state: RecordState
    record_why: str = ""
    nodes: frozenset[str] | None = None
    cluster_id: str = ""
    picked: str = ""

    def store(self, node: str) -> SurveyedStore | None:
        """The store of the node with this name."""
        return next((store for store in self.stores if store.node == node), None)


class ToldClient(StrEnum):
    """Whether a client can have been told of an event."""

    ACKNOWLEDGED = "acknowledged"
    """It had passed the commit point."""
    UNKNOWN = "unknown"
    """Nothing that is left says it."""
    ACCEPTED = "accepted"
    """It had passed the commit point, or may have, and an operator has accepted its loss before."""
    NEVER = "never"
    """A member of the last ready set lacks it, or a later primary was chosen without it: one that held all that was
    acknowledged, so no loss was accepted for it. Without the record that is not known, and it is taken on trust."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the promoted node lacks. ``position``: where it takes effect; ``nodes``: whose logs have it."""

    kind: str
    name: str
    position: Position
    nodes: tuple[str, ...]
    what: str = ""
    told: ToldClient = ToldClient.UNKNOWN
    commit: bool | None = None
    """Of a lost decision: which"""


class Unnamed(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were there and cannot be named any more: a damaged region, or what has been reclaimed."""

    node: str
    first: int
    last: int | None
    """None: up to where, is not known"""
    why: str


class BranchInDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that the promoted node has prepared and undecided. ``puts``, ``takes``: messages by queue."""

    xid: Xid
    prepared_ms: int
    puts: dict[str, int]
    takes: dict[str, int]


class PromotedContents(msgspec.Struct, frozen=True, kw_only=True):
    """What the promoted node leads to: branches in doubt, decisions in its stream, and its queues.

    ``queues``: (messages, digest) by name, as of the end of its log. ``heuristic``: what operators have decided.
    """

    branches: tuple[BranchInDoubt, ...] = ()
    globally: dict[Global, bool] = {}
    heuristic: dict[Xid, bool] = {}
    queues: dict[str, tuple[int, int]] = {}
    open_transactions: int = 0


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A coordinators' decision log: commits and aborts by transaction; ``ended``: commits that every participant has
    made.

    ``fault``: a sentence if it cannot be read; then it says nothing.
    """

    path: str
    whose: str = ""
    commits: dict[str, bool] = {}
    ended: frozenset[str] = frozenset()
    fault: str = ""


class DatabaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A database. ``prepared``: its branches; ``fates``: what has become of those that a decision names.

    ``whose`` and ``commits`` are those of its own table of decisions; ``whose`` is empty if it has none. ``earlier``:
    what earlier versions wrote instead of ``whose``.
    """

    address: str
    prepared: tuple[Xid, ...] = ()
    fates: dict[Xid, BranchOutcome] = {}
    whose: str = ""
    earlier: str = ""
    commits: dict[str, bool] = {}
    fault: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What coordinators and databases say."""

    logs: Sequence[LogFacts] = ()
    databases: Sequence[DatabaseFacts] = ()
