"""Whether decisions are an older copy of those that branches hang on: then what they lack was not aborted.

Absence of a decision means abort, in the newest decisions only. Two things tell an older copy:

- A branch that prepares only behind its transaction's intent is prepared, and there is no intent.
- There is no decision, and a resource says that it has committed its branch of the transaction.

Every resource that an intent names must have been asked before the abort is recorded: one may say the second thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recovery.coordinator.decisions import DecisionRefused, FencedDecisions
from recovery.coordinator.names import GlobalName, branch_xid, may_be
from recovery.coordinator.resources import Resource, ResourceLost, ResourceRefused
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

NOT_ASKED = "takes part in it and was not asked, so whether it has committed is not known: ask it, too"
"""Behind the name of a resource: why a transaction without a decision is left."""

_WHAT_TO_DO = (
    "nothing was settled. Put the newest copy of the log in its place, and run this again; if there is none, find out "
    "at every resource what became of the transaction, and settle its branches by hand (`txha dtx commit` or `txha dtx "
    "rollback` and then `txha dtx forget`; COMMIT PREPARED or ROLLBACK PREPARED)"
)


class DecisionsAreOlder(DecisionRefused):
    """Raised when a branch depends on a decision that these decisions lack: they are an older copy."""


class NotAllAsked(Exception):
    """A resource that takes part in an undecided transaction gave no answer; one sentence says which."""


class Asked(Protocol):
    """A resource that has answered, with our branches in doubt there."""

    resource: Resource
    name: str
    in_doubt: list[Xid]


def check(decisions: FencedDecisions, name: GlobalName, xid: Xid, at: Asked, asked: Sequence[Asked]) -> None:
    """That a branch in doubt at ``at``, without a decision, may be aborted. ``asked``: all that have answered.

    Raises DecisionsAreOlder, NotAllAsked.
    """
    transaction = str(name)
    if not name.last:
        return
    intent = decisions.intent(transaction)
    if decisions.decision(transaction) is not None or decisions.may_have_forgotten(transaction):
        return
    if intent is None and xid.bqual.decode() == name.last and _is_prepared(at, xid):
        raise DecisionsAreOlder(
            f"the decisions are older than branch {xid}, which is prepared at {at.name} and which they know nothing "
            f"of: {_WHAT_TO_DO}"
        )
    siblings = [(each.branch, each.ticket, _named(each.resource, asked)) for each in intent or ()]
    if xid.bqual.decode() != name.last:
        siblings.append((name.last, "", [each for each in asked if each is not at]))
    for branch, ticket, places in siblings:
        sibling = branch_xid(transaction, branch)
        for each in places:
            if _has_committed(each, sibling, ticket) and _is_undecided(decisions, transaction, at, xid):
                raise DecisionsAreOlder(
                    f"{each.name} has committed branch {sibling}, and the decisions do not say so, as an older copy "
                    f"of them does not, or as a branch of it came back when they had forgotten it: {_WHAT_TO_DO}"
                )


def _named(resource: str, asked: Sequence[Asked]) -> list[Asked]:
    """Those that a participant can be. Raises NotAllAsked if none is."""
    found = [each for each in asked if may_be(resource, each.name)]
    if not found:
        raise NotAllAsked(f"{resource} {NOT_ASKED}")
    return found


def _has_committed(at: Asked, sibling: Xid, ticket: str) -> bool:
    """Those that are in doubt have not."""
    return sibling not in at.in_doubt and _fate(at, sibling, ticket) is BranchOutcome.COMMITTED


def _is_undecided(decisions: FencedDecisions, transaction: str, at: Asked, xid: Xid) -> bool:
    """Now, too: it may have been decided since its branch was found, and also have ended and been forgotten."""
    return decisions.decision(transaction) is None and _is_prepared(at, xid)


def _is_prepared(at: Asked, xid: Xid) -> bool:
    """Whether a branch that was found in doubt still waits. If so, its transaction has not ended before this."""
    return _fate(at, xid, "") is BranchOutcome.PREPARED


def _fate(at: Asked, xid: Xid, ticket: str) -> BranchOutcome:
    try:
        return at.resource.fate(xid, ticket)
    except (ResourceLost, ResourceRefused) as error:
        raise NotAllAsked(f"{at.name} {NOT_ASKED} ({error})") from None
