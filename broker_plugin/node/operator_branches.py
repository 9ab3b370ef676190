"""Branches of distributed transactions, as operators ask of them and decide them, whichever broker serves clients."""

from __future__ import annotations

from typing import Protocol

from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.host.remote_broker import RemoteBroker
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import Content, Done
from txobserver.xid import Xid


class NoSuchBranch(Exception):
    """Raised for what cannot be decided or forgotten; one sentence says why."""


class OperatorBranches(Protocol):
    """Everything but ``active`` is asked while that is so."""

    @property
    def active(self) -> bool:
        """Whether this node is the active primary."""
        ...

    @property
    def content(self) -> Content:
        """What has been applied."""
        ...

    def outcome(self, xid: Xid) -> BranchOutcome:
        """What became of a branch, or is becoming of it."""
        ...

    def unknown(self, xid: Xid) -> str:
        """The sentence on a branch that is not there (any more)."""
        ...

    def decide(self, xid: Xid, commit: bool, done: Done) -> None:
        """End a prepared branch without its coordinator. Raises NoSuchBranch."""
        ...

    def forget(self, xid: Xid, done: Done) -> None:
        """Remember the outcome of a branch that has ended no more. Raises NoSuchBranch."""
        ...


class EmbeddedBranches:
    """Those of the embedded broker, which knows of branches that have not been prepared as well."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    @property
    def active(self) -> bool:
        """Whether this node is the active primary."""
        return self._broker.active

    @property
    def content(self) -> Content:
        """What has been applied."""
        return self._broker.content

    def outcome(self, xid: Xid) -> BranchOutcome:
        """What became of a branch, or is becoming of it."""
        return self._broker.branches.outcome(xid)

    def unknown(self, xid: Xid) -> str:
        """The sentence on a branch that is not there (any more)."""
        return self._broker.branches.unknown(xid).text

    def decide(self, xid: Xid, commit: bool, done: Done) -> None:
        """End a prepared branch without its coordinator. Raises NoSuchBranch."""
        try:
            self._broker.operations.branches.decide_heuristically(xid, commit, done)
        except AmqpError as error:
            raise NoSuchBranch(error.text) from error

    def forget(self, xid: Xid, done: Done) -> None:
        """Remember the outcome of a branch that has ended no more. Raises NoSuchBranch."""
        try:
            self._broker.operations.branches.forget_completed(xid, done)
        except AmqpError as error:
            raise NoSuchBranch(error.text) from error


class RemoteBranches:
    """Those of the stream, for a broker in a process of its own: what it has not prepared is not known here."""

    def __init__(self, broker: RemoteBroker) -> None:
        self._broker = broker

    @property
    def active(self) -> bool:
        """Whether this node is the active primary."""
        return self._broker.active

    @property
    def content(self) -> Content:
        """What has been applied."""
        return self._broker.content

    def outcome(self, xid: Xid) -> BranchOutcome:
        """What became of a branch."""
        return self._broker.content.outcome(xid)

    def unknown(self, xid: Xid) -> str:
        """The sentence on a branch that is not there (any more)."""
        outcome = self.outcome(xid)
        more = "" if outcome is BranchOutcome.UNKNOWN else f", its outcome is: {outcome.word}"
        return f"there is no branch {xid}{more}"

    def decide(self, xid: Xid, commit: bool, done: Done) -> None:
        """End a prepared branch without its coordinator."""
        self._broker.ledger.decide_branch(xid, commit, True, done)

    def forget(self, xid: Xid, done: Done) -> None:
        """Remember the outcome of a branch that has ended no more."""
        self._broker.ledger.forget_branch(xid, done)
