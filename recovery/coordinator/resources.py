"""What a coordinator asks of a resource: a broker, a database. The verbs are XA's."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from recovery.dtx.errors import DatabaseError, OperationalError, RolledBack
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid


class Participant(NamedTuple):
    """A resource that has prepared its branch.

    ``resource`` says which one, wherever it is reached; ``branch`` is the branch id. ``ticket`` is the resource's own
    name for its part, by which it can tell the outcome later; empty if it does not need one.
    """

    resource: str
    branch: str
    ticket: str = ""


LEFT = "the branch was left: its transaction has ended, or another one has begun over its connection; one at a time"
"""A sentence for who works in a branch that is not at hand."""


class ResourceLost(OperationalError):
    """Raised when a broker or database cannot be reached, or its connection broke before it answered.

    What the resource did of that one call is not known. Out of a coordinator's block it comes only before the commit,
    so the transaction is rolled back.
    """


class ResourceRefused(DatabaseError):
    """Raised when a broker or database answers, and will not do what was asked; one sentence says why."""


class BranchRolledBack(RolledBack):
    """Raised by a resource when it has rolled back the branch that it was to prepare or to commit."""


class Resource(Protocol):
    """One resource, and the one branch at a time that is worked on at it. Every method may raise ResourceLost."""

    @property
    def name(self) -> str:
        """Which resource this is: the same through whichever address it is reached, and no other resource's."""

    # -- work

    def begin(self, xid: Xid) -> None:
        """What is done at the resource from now on belongs to this branch."""

    def prepare(self, xid: Xid) -> Participant | None:
        """Nothing more belongs to it, and it can be committed and rolled back, whatever crashes.

        None: there was nothing to prepare, and the branch has ended. Raises BranchRolledBack.
        """

    def commit_in_one_phase(self, xid: Xid) -> None:
        """The whole of it, for a branch without others. Raises BranchRolledBack."""

    def abandon(self, xid: Xid) -> None:
        """Roll back the branch that is worked on, prepared or not."""

    # -- branches that are prepared, also those of others

    def in_doubt(self) -> list[Xid]:
        """All branches that are prepared, or were decided by an operator and are not forgotten."""

    def settle(self, xid: Xid, commit: bool, ticket: str) -> BranchOutcome:
        """Carry a decision out on a prepared branch, or tell what another has made of it.

        Raises ResourceRefused.
        """

    def fate(self, xid: Xid, ticket: str) -> BranchOutcome:
        """What has become of a branch that had prepared."""

    def fence(self, xid: Xid) -> None:
        """The global transaction of this branch is aborted: refuse its branches that prepare from now on, if possible.

        Raises ResourceRefused.
        """

    def forget(self, xid: Xid) -> None:
        """An operator's decision on this branch need not be remembered."""

    def close(self) -> None:
        """Let go of the connection. Raises nothing."""
