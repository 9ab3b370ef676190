"""What every checker of a promise is told; each looks at what concerns its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.calls.answers import Answer
from ha.effects import RunAction
from ha.membership.members import MemberChange
from ha.membership.record import Record
from ha.messages.greeting import Hello
from ha.messages.wire import Peer
from tests.simulation.book import Attempt
from tests.simulation.reference import Change, Deletions
from txobserver.calls import LocalCalls
from txobserver.events import Configure, DtxPrepare, TxPrepare
from txobserver.ids import Member, Position
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth


class Checker:
    """Told of everything; looks at what concerns its promise.

    Many methods: an interface with one for each thing that is told, all of which do nothing here.
    """

    promise = ""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.book = truth.book

    def fail(self, text: str) -> None:
        """The promise is broken."""
        self.truth.fail(self.promise, text)

    def changed(self, change: Change) -> None:
        """The one stream has gone on by an event, with these changes of queues."""

    def cut(self, kept: int, changes: list[Change]) -> None:
        """What lay behind ``kept`` is lost, as an operator has accepted; these are the changes up to there."""

    def settling(self, process: Process) -> None:
        """A node has been told all that is at hand, and is about to draw the consequences."""

    def turned(self, process: Process) -> None:
        """A node's turn has ended."""

    def stands_at(self, process: Process, applied: Position) -> None:
        """A node has applied more, or a snapshot."""

    def undoing(self, process: Process, last: int) -> None:
        """A node is about to undo what it holds behind ``last``."""

    def closing(self, process: Process, event: TxPrepare | DtxPrepare) -> None:
        """A primary closes a transaction."""

    def granting(self, process: Process, member: Member) -> None:
        """A primary asks for a member to be ready."""

    def visible(self, process: Process, queue: str, body: str) -> None:
        """A serving primary's broker has been given a message."""

    def stale(self, process: Process, before: object, after: object) -> None:
        """A node has been sent a message of a lower generation; what it held before and after."""

    def record_changed(self, record: Record) -> None:
        """The coordination record is another."""

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        """A node answers a client."""

    def forced(self, process: Process, undecided: bool) -> None:
        """A node closes a client since it serves no more. ``undecided``: something that has begun has no answer."""

    def told_of(self, process: Process, attempt: Attempt, outcome: BranchOutcome) -> None:
        """A node tells what became of a branch."""

    def listed(self, process: Process, branches: list[Xid]) -> None:
        """A node lists the branches that are in doubt, or were decided by an operator."""

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        """A node hands a message out."""

    def counted(self, process: Process, queue: str, messages: int) -> None:
        """A node tells a queue's length."""

    def deleted(self, process: Process, queue: str, before: Deletions, count: int) -> None:
        """A node tells that a queue, which was to be deleted if it was empty, has gone with so many messages."""

    def kept(self, process: Process, queue: str, before: Deletions) -> None:
        """A node tells that such a queue is not empty. ``before``: what was known of it when that was asked."""

    def declared(self, process: Process, exchange: str) -> None:
        """A node tells that there is this exchange."""

    def bound(self, process: Process, source: str, queue: str) -> None:
        """A node tells that a queue is bound."""

    def unbinding(self, source: str, queue: str) -> None:
        """A client is about to ask for the end of a binding."""

    def acknowledging(self, process: Process, sequence: int) -> None:
        """A node sends word that its log is durable up to there; 0: that its store is marked as resyncing."""

    def sending(self, process: Process, last: Position) -> None:
        """A primary sends a backup the stream's events up to this one."""

    def configuring(self, process: Process, step: Configure) -> None:
        """A primary writes a step of configuration."""

    def linked(self, process: Process, greeting: Hello) -> None:
        """A node has a link to another one, which has greeted it so."""

    def given_up(self, process: Process, peer: str) -> None:
        """A node closes its link with a peer, of which it says that nothing comes."""

    def taking(self, process: Process, message: Peer) -> None:
        """A node is about to take a message of a peer."""

    def leaves(self, process: Process, generation: int) -> None:
        """What a node held as primary of this generation is sent to a client: a message, a length, an outcome."""

    def action_begins(self, process: Process, action: RunAction) -> None:
        """A node begins to run an action of a cluster call."""

    def action_ran(self, process: Process, action: RunAction, error: str | None) -> None:
        """It has returned, and its node is told."""

    def calls_kept(self, process: Process, local: LocalCalls) -> None:
        """It is durable on a node's disk how far it has run the calls."""

    def call_answered(self, process: Process, call_id: bytes, need: int, answer: Answer) -> None:
        """A node tells an operator what became of a cluster call."""

    def user_answered(
        self, process: Process, label: str, name: str, before: dict[str | None, int], error: str | None
    ) -> None:
        """A node tells an operator what became of a step about a user."""

    def member_answered(self, process: Process, change: MemberChange, before: int, error: str | None) -> None:
        """A node tells an operator what became of a change of the members that was asked for at version ``before``."""

    def finished(self) -> None:
        """The run is over."""
