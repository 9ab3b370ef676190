"""The recovery run: meets every branch in doubt, at brokers and databases, with the decisions, and settles it.

1. Read which commits are not finished.
2. Ask every resource for its branches in doubt. What is not ours is never touched.
3. For each: the decision that stands, and if there is none, the abort, recorded *before* it is carried out.
   So a coordinator that is slow finds its transaction aborted, and one that was faster has its commit carried out.
4. A commit of 1 is finished when every participant has been asked in 2, and has nothing of it left in doubt.

The order is what makes it right. A participant had prepared before the commit was recorded (1), so if it does not
list the branch afterwards (2), the branch has been settled. A decision is looked for (3) after the branch was found
(2), so "none" means undecided, or committed and finished in between. In that case the abort of 3 comes too late for
everybody: no branch is left for it, which the run sees when it settles, and nobody will ask for it again. Each step
does nothing if it has been done before: runs may be repeated, and may overlap.

A transaction that began less than ``grace`` seconds ago and has no decision is left to its coordinator. That is a
courtesy, not a condition: without it a run rolls back what others are just preparing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from recovery.coordinator.decisions import Decision, DecisionRefused, Decisions, DecisionUnknown
from recovery.coordinator.names import branch_xid, our_name
from recovery.coordinator.resources import Fate, Participant, Resource, ResourceLost, ResourceRefused
from txobserver.xid import Global, Xid

GRACE = 60.0
"""Seconds for which an undecided transaction is left to its coordinator, unless a run is told otherwise."""
BEGAN_A_MOMENT_AGO = "it began a moment ago, and its coordinator may still decide"


@dataclass
class Row:
    """One branch. ``decision``: commit, rollback, or none. ``why``: a sentence if it is not as was decided."""

    transaction: str
    resource: str
    branch: str
    decision: str
    fate: Fate
    why: str = ""

    @property
    def contradicted(self) -> bool:
        """Whether somebody had decided this branch otherwise."""
        return self.decision != "none" and self.fate.contradicts(self.decision == "commit")


@dataclass
class Report:
    """What a run found and did. ``unreachable``: resources that gave no answer, by address, each with a sentence.

    ``waiting``: commits that a participant has not carried out as far as is known, each with the resource waited for.
    """

    rows: list[Row] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    waiting: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """What another run found, with other decisions."""
        self.rows += other.rows
        self.unreachable.update(other.unreachable)
        self.waiting += other.waiting

    @property
    def contradicted(self) -> list[Row]:
        """Branches that somebody had decided otherwise."""
        return [row for row in self.rows if row.contradicted]

    @property
    def settled(self) -> bool:
        """Whether nothing of ours is left in doubt at any resource."""
        in_doubt = any(row.fate is Fate.PREPARED for row in self.rows)
        return not (in_doubt or self.unreachable or self.waiting)


def recover(
    decisions: Decisions,
    resources: dict[str, Resource],
    grace: float = GRACE,
    forget: bool = False,
    leave: Collection[Global] = (),
) -> Report:
    """One run. ``resources``: by address. ``forget``: contradictions need not be remembered any more once reported.

    ``leave``: global transactions that are somebody else's to decide; none of their branches is touched. Raises
    DecisionRefused and DecisionUnknown if decisions can be neither read nor made.
    """
    return _Run(decisions, resources, grace, forget, leave).run()


def recover_with_each(
    sources: Mapping[str, Callable[[], Decisions]],
    resources: dict[str, Resource],
    grace: float = GRACE,
    forget: bool = False,
    leave: Collection[Global] = (),
) -> Report:
    """A run with each of several decisions, which are named by where they are; what cannot be read is reported."""
    report = Report()
    for place, decisions in sources.items():
        try:
            report.add(recover(decisions(), resources, grace, forget, leave))
        except (DecisionRefused, DecisionUnknown) as error:
            report.unreachable[place] = str(error)
    return report


class _Run:
    def __init__(
        self,
        decisions: Decisions,
        addresses: dict[str, Resource],
        grace: float,
        forget: bool,
        leave: Collection[Global],
    ) -> None:
        self._decisions = decisions
        self._addresses = addresses
        self._grace = grace
        self._forget = forget
        self._leave = leave
        self._resources: dict[str, Resource] = {}
        self._report = Report()

    def run(self) -> Report:
        unfinished = self._decisions.unfinished()
        found = self._ask()
        for resource, xids in found.items():
            for xid in xids:
                self._meet(resource, xid)
        for transaction, decision in unfinished.items():
            self._finish(transaction, decision)
        return self._report

    def _ask(self) -> dict[str, list[Xid]]:
        """Our branches in doubt, by the name of the resource; two addresses of one resource are one."""
        found: dict[str, list[Xid]] = {}
        for address, resource in self._addresses.items():
            try:
                if resource.name not in found:
                    xids = resource.in_doubt()
                    self._resources[resource.name] = resource
                    found[resource.name] = [xid for xid in xids if self._is_ours(xid)]
            except (ResourceLost, ResourceRefused) as error:
                self._report.unreachable[address] = str(error)
        return found

    def _is_ours(self, xid: Xid) -> bool:
        return our_name(xid, self._decisions.whose) is not None and xid.globally not in self._leave

    def _meet(self, resource: str, xid: Xid) -> None:
        name = our_name(xid, self._decisions.whose)
        assert name is not None, "looked at before"
        transaction = str(name)
        decision = self._decisions.decision(transaction)
        if decision is None:
            if time.time() - name.began < self._grace:
                self._tell(transaction, resource, xid, "none", Fate.PREPARED, BEGAN_A_MOMENT_AGO)
                return
            try:
                aborted = not self._decisions.decide(transaction, False)
            except (DecisionRefused, DecisionUnknown) as error:
                self._tell(transaction, resource, xid, "none", Fate.PREPARED, str(error))
                return
            if aborted and self._is_prepared(resource, xid):
                self._fence(xid)
            decision = self._decisions.decision(transaction)
            if decision is None:
                return  # somebody else has committed it meanwhile, and finished
        branch = resource, xid.bqual.decode()
        tickets = [each.ticket for each in decision.participants if (each.resource, each.branch) == branch]
        self._settle(transaction, resource, xid, decision.commit, tickets[0] if tickets else "")

    def _is_prepared(self, resource: str, xid: Xid) -> bool:
        """Whether a branch that was found in doubt still is."""
        try:
            return self._resources[resource].fate(xid, "") is Fate.PREPARED
        except (ResourceLost, ResourceRefused):
            return False  # the next run will know

    def _fence(self, xid: Xid) -> None:
        """The transaction is aborted: no branch of it shall prepare later, where that can be prevented."""
        for resource in self._resources.values():
            try:
                resource.fence(xid)
            except (ResourceLost, ResourceRefused):
                continue  # a branch that prepares later is found by a later run

    def _settle(self, transaction: str, resource: str, xid: Xid, commit: bool, ticket: str) -> None:
        decision = "commit" if commit else "rollback"
        try:
            fate = self._resources[resource].settle(xid, commit, ticket)
            if not commit and fate is Fate.COMMITTED:
                return  # and finished, before the abort was recorded
            row = self._tell(transaction, resource, xid, decision, fate)
            if fate.heuristic and (self._forget or not row.contradicted):
                self._resources[resource].forget(xid)
        except (ResourceLost, ResourceRefused) as error:
            self._tell(transaction, resource, xid, decision, Fate.PREPARED, str(error))

    def _finish(self, transaction: str, decision: Decision) -> None:
        done = [self._has_committed(transaction, each) for each in decision.participants]
        if all(done):
            self._decisions.finish(transaction)

    def _has_committed(self, transaction: str, participant: Participant) -> bool:
        """Whether a participant has, or nobody wants to be told any more that it has not."""
        resource, xid = participant.resource, branch_xid(transaction, participant.branch)
        fate = next((row.fate for row in self._report.rows if (row.resource, row.branch) == (resource, str(xid))), None)
        if fate is None and resource in self._resources:
            try:
                fate = self._resources[resource].fate(xid, participant.ticket)
            except (ResourceLost, ResourceRefused) as error:
                self._tell(transaction, resource, xid, "commit", Fate.PREPARED, str(error))
            else:
                if fate.contradicts(True):
                    self._tell(transaction, resource, xid, "commit", fate)
        if fate is None or fate is Fate.PREPARED:
            self._report.waiting.append((transaction, resource))
            return False
        return self._forget or not fate.contradicts(True)

    def _tell(self, transaction: str, resource: str, xid: Xid, decision: str, fate: Fate, why: str = "") -> Row:
        row = Row(transaction, resource, str(xid), decision, fate, why)
        if row.contradicted:
            row.why = "somebody has decided this branch otherwise; the transaction is mixed"
        self._report.rows.append(row)
        return row
