"""To settle a branch of which it is not known how far it is: ask for its outcome, and then, if need be, once more.

A request whose answer was lost is never simply sent again: the outcome is asked for first, and only a branch that still
waits for the request gets it again (``recovery.dtx.two_phase`` says why that is right).
"""

from __future__ import annotations

from typing import TypeAlias

from recovery.dtx.arguments import fields_of
from recovery.dtx.conversation import Conversation, Deadline, Lost, Steps
from recovery.dtx.errors import HEURISTIC, Conflict, OutcomeUnknown, RolledBack, UnknownXid, heuristic
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome, XaStatus
from txobserver.xid import Global, Xid

OPEN = (BranchOutcome.ACTIVE, BranchOutcome.ROLLED_BACK)
"""A branch that is not prepared; ROLLED_BACK: it is rollback-only, and the next request is told why."""

NOT_THERE = (BranchOutcome.UNKNOWN, BranchOutcome.EXPIRED)

Closing: TypeAlias = dtx.Prepare | dtx.Commit | dtx.Rollback
"""Requests after which the branch is worked on no more."""


class Settling(Conversation):
    """A conversation in which branches come to an end, whatever is lost on the way."""

    def settled(self, xid: Xid, request: dtx.Commit | dtx.Rollback, since: int = 0, lost: bool = False) -> Steps[None]:
        """As ``settle``. Raises RolledBack if it was that instead of committed."""
        status = yield from self.settle(xid, request, since, lost)
        if status is not XaStatus.OK and isinstance(request, dtx.Commit):
            raise RolledBack(f"branch {xid} was rolled back")

    def settle(self, xid: Xid, request: Closing, since: int = 0, lost: bool = False) -> Steps[XaStatus]:
        """Ask what has become of the branch, and make the request if it still waits for that; the request's status.

        ``since``: how far the broker was when the branch began, 0 for one that did not begin here. ``lost``: the branch
        is ours, and the request may have arrived before.
        """
        deadline = self.deadline()
        while True:
            outcome = None
            try:
                outcome = yield from self._hear(xid, deadline, since)
                if _waits_for(request, outcome):
                    return checked(xid, XaStatus((yield from self.ask(request)).status))
            except Lost:
                lost = True
            except UnknownXid:  # it has ended between question and request
                if outcome is BranchOutcome.ROLLED_BACK:
                    return XaStatus.OK if isinstance(request, dtx.Rollback) else XaStatus.ROLLED_BACK
            except Conflict:
                if not (lost and outcome in OPEN):  # it may be worked on by a connection that is gone, for a while
                    raise
            else:
                if outcome is not BranchOutcome.PENDING:
                    return _status(xid, request, outcome, lost)
            yield from deadline.wait(f"branch {xid}")

    def _hear(self, xid: Xid, deadline: Deadline, since: int) -> Steps[BranchOutcome]:
        """The outcome, on a channel that is opened anew if need be. Raises Lost."""
        yield from self.reopen(deadline)
        question = dtx.Outcome(dtx.BY_XID, fields_of(xid), since)
        deadline.outcome = BranchOutcome((yield from self.ask(question)).outcome)
        return deadline.outcome


def _waits_for(request: Closing, outcome: BranchOutcome) -> bool:
    """Whether a branch of which this is known can be given the request."""
    if isinstance(request, dtx.Rollback):
        return outcome in (*OPEN, BranchOutcome.PREPARED)
    one_phase = isinstance(request, dtx.Commit) and request.one_phase
    return outcome in OPEN if one_phase or isinstance(request, dtx.Prepare) else outcome is BranchOutcome.PREPARED


def _status(xid: Xid, request: Closing, outcome: BranchOutcome, lost: bool) -> XaStatus:
    """What a branch that waits for nothing of this kind says about the request."""
    if outcome in NOT_THERE:
        return _status_of_none(xid, request, outcome, lost)
    if isinstance(request, dtx.Prepare):
        return XaStatus.OK  # it was prepared, whatever was decided since
    if outcome in HEURISTIC:
        raise heuristic(f"branch {xid}", outcome)
    if isinstance(request, dtx.Commit) and outcome in (BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK):
        return XaStatus.OK if outcome is BranchOutcome.COMMITTED else XaStatus.ROLLED_BACK
    raise Conflict(f"branch {xid} is {outcome.name.lower().replace('_', ' ')}")


def _status_of_none(xid: Xid, request: Closing, outcome: BranchOutcome, lost: bool) -> XaStatus:
    """The same for one that is not there."""
    if not lost:
        raise UnknownXid(f"there is no branch {xid}; its outcome is: {outcome.name.lower()}")
    if isinstance(request, dtx.Rollback):
        return XaStatus.OK
    if isinstance(request, dtx.Commit) and not request.one_phase:
        raise OutcomeUnknown(f"branch {xid} is gone: another client has rolled it back, or forgotten it", outcome)
    if isinstance(request, dtx.Commit) and outcome is BranchOutcome.EXPIRED:
        raise OutcomeUnknown(f"how branch {xid} ended is not remembered (any more)", outcome)
    return XaStatus.ROLLED_BACK


def checked(name: Xid | Global, status: XaStatus) -> XaStatus:
    """The status, unless an operator has decided before."""
    if status in HEURISTIC:
        raise heuristic(f"{'branch' if isinstance(name, Xid) else 'global transaction'} {name}", status)
    return status
