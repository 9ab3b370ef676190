"""The recovery run: meets every branch in doubt, at brokers and databases, with the decisions, and settles it.

1. Read which commits are not finished.
2. Ask every resource for its branches in doubt. What is not ours is never touched.
3. For each: the decision that stands, and if there is none, the abort, recorded *before* it is carried out.
   So a coordinator that is slow finds its transaction aborted, and one that was faster has its commit carried out.
4. A commit of 1 is finished when every participant has been asked in 2, has nothing of it left in doubt, and says that
   it has committed. One that has forgotten it stays in the report until an operator has looked and says ``forget``.

The order is what makes it right. A participant had prepared before the commit was recorded (1), so if it does not
list the branch afterwards (2), the branch has been settled. A decision is looked for (3) after the branch was found
(2), so "none" means undecided, or committed and finished in between. In that case the abort of 3 comes too late for
every participant: no branch is left for it, which the run sees when it settles, and nothing asks for it again. Each
step does nothing if it has been done before: runs may be repeated, and may overlap.

A transaction that began less than ``grace`` seconds ago and has no decision is left to its coordinator. That is a
courtesy, not a condition: without it a run rolls back what others are just preparing. It is not given to a transaction
that seems to begin more than ``grace`` seconds from now: its coordinator's clock is wrong, and nothing says when it
began.

Decisions may be an older copy of those that a branch hangs on, and lack its commit. So before any abort is recorded,
the run looks at every branch without a decision, and settles nothing if one tells that
(``recovery.coordinator.older_copy``).

What an operator has decided of a commit is forgotten at its resource only when the commit has finished: until then it
is the only trace of what became of the branch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from recovery.coordinator.decisions import Decision, DecisionRefused, Decisions, DecisionUnknown, FencedDecisions
from recovery.coordinator.names import GlobalName, branch_xid, is_unique, may_be, read_our_name
from recovery.coordinator.older_copy import DecisionsAreOlder, NotAllAsked, check
from recovery.coordinator.resources import Participant, Resource, ResourceLost, ResourceRefused
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Global, Xid

GRACE = 60.0
"""Seconds for which an undecided transaction is left to its coordinator, unless a run is told otherwise."""
BEGAN_A_MOMENT_AGO = "it began a moment ago, and its coordinator may still decide"
OTHERWISE = "this branch was decided otherwise, not by its coordinator; the transaction is mixed"
NOT_KNOWN = "its resource does not know any more what became of it: look, mend what is missing, and run with --forget"


@dataclass
class Row:
    """One branch. ``decision``: commit, rollback, or none. ``why``: a sentence if it is not as was decided."""

    transaction: str
    resource: str
    branch: str
    decision: str
    fate: BranchOutcome
    why: str = ""

    @property
    def contradicted(self) -> bool:
        """Whether this branch had been decided otherwise, not by its coordinator."""
        return self.decision != "none" and self.fate.contradicts(self.decision == "commit")

    @property
    def not_known(self) -> bool:
        """Whether this is a branch to be committed of which it is not known whether it has been."""
        return self.decision == "commit" and self.fate is BranchOutcome.UNKNOWN


@dataclass
class Report:
    """What a run found and did. ``unreachable``: resources that gave no answer, by address, each with a sentence.

    ``waiting``: commits that a participant has not carried out as far as is known, each with the resource waited for,
    or that all have carried out, and whose record cannot be removed yet, each with a sentence.

    ``asked``: the names of the resources that answered, by address. ``not_asked``: names of resources that the
    decisions name, and that did not answer. ``others``: branches in doubt that hang on decisions which were not asked,
    by resource and branch, with the id of those; ``foreign``: those of other programs. ``older``: decisions that are an
    older copy, by where they are, each with a sentence.
    """

    rows: list[Row] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)
    not_asked: list[str] = field(default_factory=list)
    others: dict[tuple[str, Xid], str] = field(default_factory=dict)
    foreign: dict[tuple[str, Xid], str] = field(default_factory=dict)
    older: dict[str, str] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        """What another run found, with other decisions."""
        self.rows += other.rows
        self.unreachable.update(other.unreachable)
        self.waiting += other.waiting
        self.asked.update(other.asked)
        self.not_asked += [each for each in other.not_asked if each not in self.not_asked]
        self.others.update(other.others)
        self.foreign.update(other.foreign)
        self.older.update(other.older)

    @property
    def contradicted(self) -> list[Row]:
        """Branches that had been decided otherwise, not by their coordinators."""
        return [row for row in self.rows if row.contradicted]

    @property
    def not_known(self) -> list[Row]:
        """Branches to be committed of which it is not known whether they have been."""
        return [row for row in self.rows if row.not_known]

    @property
    def settled(self) -> bool:
        """Whether nothing of ours is left in doubt at any resource, and every commit is known to be carried out."""
        in_doubt = any(row.fate is BranchOutcome.PREPARED for row in self.rows)
        return not (in_doubt or self.not_known or self.unreachable or self.waiting or self.older)

    def is_complete(self, everything: bool = False) -> bool:
        """Whether every resource, and all decisions, that those that were asked know of have been asked.

        ``everything``: branches of other programs count as well.
        """
        return not (self.not_asked or self.others or (everything and self.foreign))


def recover(
    decisions: Decisions,
    resources: dict[str, Resource],
    grace: float = GRACE,
    forget: bool = False,
    leave: Collection[Global] = (),
) -> Report:
    """One run. ``resources``: by address. ``forget``: contradictions, and what is not known any more, need not be
    remembered once they are reported. ``grace``: seconds, 0 for none.

    ``leave``: global transactions that this run must not decide; none of their branches is touched. Raises
    DecisionRefused and DecisionUnknown if decisions can be neither read nor made, or are an older copy
    (DecisionsAreOlder); and TypeError or ValueError for a ``grace`` that cannot be, before any resource is asked.
    """
    check_grace(grace)
    return _Run(decisions, resources, grace, forget, leave).run()


def check_grace(grace: float) -> None:
    """Raises TypeError for what is no number, and ValueError for one that cannot be waited for."""
    if isinstance(grace, bool) or not isinstance(grace, int | float):
        raise TypeError(f"grace is a number of seconds, and not {type(grace).__name__}")
    if not 0 <= grace < math.inf:
        raise ValueError("grace must be a finite number of seconds, and not negative")


def recover_with_each(
    sources: Mapping[str, Callable[[], Decisions]],
    resources: dict[str, Resource],
    grace: float = GRACE,
    forget: bool = False,
    leave: Collection[Global] = (),
) -> Report:
    """A run with each of several decisions, which are named by where they are; what cannot be read is reported."""
    report, owners = Report(), []
    for place, make in sources.items():
        try:
            decisions = make()
            owners.append(decisions)
            report.add(recover(decisions, resources, grace, forget, leave))
        except DecisionsAreOlder as error:
            report.older[place] = str(error)
        except (DecisionRefused, DecisionUnknown) as error:
            report.unreachable[place] = str(error)
    report.others = {
        each: whose for each, whose in report.others.items() if all(one.owns(each[1]) is None for one in owners)
    }
    return report


@dataclass
class _Asked:
    """A resource that has answered, with our branches in doubt there; ``fates``: what this run has told of branches."""

    resource: Resource
    name: str
    in_doubt: list[Xid]
    fates: dict[Xid, BranchOutcome] = field(default_factory=dict)


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
        self._asked: list[_Asked] = []
        self._to_forget: list[tuple[str, _Asked, Xid]] = []
        self._report = Report()
        self._left: dict[str, str] = {}

    def run(self) -> Report:
        unfinished = self._decisions.unfinished()
        self._ask()
        self._check_decisions()
        for asked in self._asked:
            for xid in asked.in_doubt:
                self._meet(asked, xid)
        for transaction, decision in unfinished.items():
            self._finish(transaction, decision)
        self._forget_what_has_finished()
        return self._report

    def _ask(self) -> None:
        """Our branches in doubt; two addresses of one resource are one, where its name says that it is one."""
        for address, resource in self._addresses.items():
            try:
                name = resource.name
                if not is_unique(name) or name not in {asked.name for asked in self._asked}:
                    found = resource.in_doubt()
                    self._asked.append(_Asked(resource, name, [xid for xid in found if self._is_ours(xid)]))
                    self._note_others(name, found)
                self._report.asked[address] = name
            except (ResourceLost, ResourceRefused) as error:
                self._report.unreachable[address] = str(error)

    def _note_others(self, resource: str, found: Collection[Xid]) -> None:
        """Branches in doubt that do not hang on these decisions, but for those that began a moment ago."""
        for xid in found:
            name = read_our_name(xid)
            if name is None:
                self._report.foreign[resource, xid] = ""
            elif self._decisions.owns(xid) is None and not self._is_young(name):
                self._report.others[resource, xid] = name.whose

    def _is_young(self, name: GlobalName) -> bool:
        """Whether its coordinator may still decide it."""
        return abs(time.time() - name.began) < self._grace

    def _check_decisions(self) -> None:
        """Raises DecisionsAreOlder, before anything is settled."""
        decisions = self._decisions
        if not isinstance(decisions, FencedDecisions):
            return
        for each in self._asked:
            for xid in each.in_doubt:
                name = decisions.owns(xid)
                assert name is not None, "looked at before"
                if decisions.decision(str(name)) is None:
                    try:
                        check(decisions, name, xid, each, self._asked)
                    except NotAllAsked as error:
                        self._left[str(name)] = str(error)
        self._report.not_asked = [
            known for known in decisions.resources() if not any(may_be(known, each.name) for each in self._asked)
        ]

    def _is_ours(self, xid: Xid) -> bool:
        return self._decisions.owns(xid) is not None and xid.globally not in self._leave

    def _meet(self, asked: _Asked, xid: Xid) -> None:
        name = self._decisions.owns(xid)
        assert name is not None, "looked at before"
        transaction = str(name)
        decision = self._decisions.decision(transaction)
        if decision is None:
            why = BEGAN_A_MOMENT_AGO if self._is_young(name) else self._left.get(transaction)
            if why is not None:
                self._tell(transaction, asked, xid, "none", BranchOutcome.PREPARED, why)
                return
            try:
                aborted = not self._decisions.decide(transaction, False)
            except (DecisionRefused, DecisionUnknown) as error:
                self._tell(transaction, asked, xid, "none", BranchOutcome.PREPARED, str(error))
                return
            if aborted and self._is_prepared(asked, xid):
                self._fence(xid)
            decision = self._decisions.decision(transaction)
            if decision is None:
                return  # its coordinator or another run has committed it meanwhile, and finished
        branch = xid.bqual.decode()
        tickets = [
            each.ticket for each in decision.participants if each.branch == branch and may_be(each.resource, asked.name)
        ]
        self._settle(transaction, asked, xid, decision.commit, tickets[0] if tickets else "")

    @staticmethod
    def _is_prepared(asked: _Asked, xid: Xid) -> bool:
        """Whether a branch that was found in doubt still is."""
        try:
            return asked.resource.fate(xid, "") is BranchOutcome.PREPARED
        except (ResourceLost, ResourceRefused):
            return False  # the next run will know

    def _fence(self, xid: Xid) -> None:
        """The transaction is aborted: no branch of it shall prepare later, where that can be prevented."""
        for asked in self._asked:
            try:
                asked.resource.fence(xid)
            except (ResourceLost, ResourceRefused):
                continue  # a branch that prepares later is found by a later run

    def _settle(self, transaction: str, asked: _Asked, xid: Xid, commit: bool, ticket: str) -> None:
        decision = "commit" if commit else "rollback"
        try:
            fate = asked.resource.settle(xid, commit, ticket)
            if not commit and fate is BranchOutcome.COMMITTED:
                return  # and finished, before the abort was recorded
            row = self._tell(transaction, asked, xid, decision, fate)
            if fate.heuristic and (self._forget or not row.contradicted):
                if commit:
                    self._to_forget.append((transaction, asked, xid))
                else:
                    asked.resource.forget(xid)
        except (ResourceLost, ResourceRefused) as error:
            self._tell(transaction, asked, xid, decision, BranchOutcome.PREPARED, str(error))

    def _finish(self, transaction: str, decision: Decision) -> None:
        done = [self._has_committed(transaction, each) for each in decision.participants]
        if all(done):
            try:
                self._decisions.finish(transaction)
            except DecisionRefused as error:  # as where a client that is gone holds its row: the others' turn comes
                self._report.waiting.append((transaction, f"its record to be removed: {error}"))

    def _has_committed(self, transaction: str, participant: Participant) -> bool:
        """Whether a participant has, or ``forget`` says that it need not be told any more that it has not."""
        xid = branch_xid(transaction, participant.branch)
        fates = {
            index: self._fate(transaction, asked, xid, participant.ticket)
            for index, asked in enumerate(self._asked)
            if may_be(participant.resource, asked.name)
        }
        if not fates or BranchOutcome.PREPARED in fates.values():
            self._report.waiting.append((transaction, participant.resource))
            return False
        if any(fate.confirms(True) for fate in fates.values()):
            return True
        otherwise = [index for index, fate in fates.items() if fate.contradicts(True)]
        if not otherwise and transaction not in self._decisions.unfinished():
            return False  # the coordinator or another run has seen it finished, and forgotten
        for index in otherwise or fates:
            if xid not in self._asked[index].fates:
                self._tell(transaction, self._asked[index], xid, "commit", fates[index])
        return self._forget

    def _fate(self, transaction: str, asked: _Asked, xid: Xid, ticket: str) -> BranchOutcome:
        """What has become of a branch; prepared also if the resource cannot be asked, which is told."""
        if xid in asked.fates:
            return asked.fates[xid]
        try:
            return asked.resource.fate(xid, ticket)
        except (ResourceLost, ResourceRefused) as error:
            self._tell(transaction, asked, xid, "commit", BranchOutcome.PREPARED, str(error))
            return BranchOutcome.PREPARED

    def _forget_what_has_finished(self) -> None:
        """At the resources, what operators have decided."""
        unfinished = self._decisions.unfinished() if self._to_forget else {}
        for transaction, asked, xid in self._to_forget:
            if transaction not in unfinished:
                try:
                    asked.resource.forget(xid)
                except (ResourceLost, ResourceRefused):
                    continue  # the next run finds it again

    def _tell(
        self, transaction: str, asked: _Asked, xid: Xid, decision: str, fate: BranchOutcome, why: str = ""
    ) -> Row:
        row = Row(transaction, asked.name, str(xid), decision, fate, why)
        if row.contradicted:
            row.why = OTHERWISE
        elif row.not_known:
            row.why = NOT_KNOWN
        asked.fates[xid] = fate
        self._report.rows.append(row)
        return row
