"""Settling the branches of a plan that was carried out, when the nodes run again.

1. Each branch is asked for where it is prepared. What has ended has ended: it is reported, also if the plan says
   otherwise, and never undone.
2. What is to be settled by hand, and is prepared, is settled.
3. The recovery runs settle what hangs on a decision log or a table. They leave alone what is for people to decide or
   is settled by hand: logs and tables need not know of such decisions, and what has none is rolled back.

Brokers remember how branches ended, so a run behind one that was killed finds what has been done. But what
an operator has decided may be forgotten on purpose, here (if it was as planned) and in a recovery run. So how a
branch ended is noted in the plan before it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from recovery.coordinator.recover import Report
from recovery.coordinator.resources import Resource, ResourceLost, ResourceRefused
from recovery.planner.verdicts import BROKER, By, Verdict
from recovery.store.crash_points import crash_point
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Global

OTHERWISE = "it was ended otherwise, not by this run"
NOT_REMEMBERED = "it has ended, and how is not remembered any more"
NOT_YET = "the new primary has not carried it out yet"
LEFT = "another branch of its transaction is not for the recovery run to settle"


@dataclass(frozen=True)
class BranchEnd:
    """What is known of a branch. ``why``: a sentence if it is not as was planned."""

    verdict: Verdict
    fate: BranchOutcome
    why: str = ""

    @property
    def contrary(self) -> bool:
        """Whether it is known to have ended otherwise than was planned."""
        planned = self.verdict.outcome
        return planned is not BranchOutcome.UNKNOWN and self.fate.contradicts(planned is BranchOutcome.COMMITTED)

    @property
    def settled(self) -> bool:
        """Whether it has ended as was planned. Databases keep no trace of what has ended, and people decide alone."""
        if self.fate is BranchOutcome.UNKNOWN:
            return self.verdict.resource != BROKER or self.verdict.outcome is BranchOutcome.UNKNOWN
        return self.fate is not BranchOutcome.PREPARED and not self.contrary

    @property
    def state(self) -> str:
        """For people: the outcome, or just that it has ended."""
        return "ended" if self.settled and self.fate is BranchOutcome.UNKNOWN else self.fate.word


Note = Callable[[Sequence[BranchEnd]], None]
"""Told what is known of all branches of the plan, in its order, to make it durable."""
Run = Callable[[Collection[Global]], Report]
"""Makes the recovery runs, which leave these global transactions alone."""


def settle(
    plan: Sequence[Verdict], noted: Sequence[BranchOutcome], resources: Mapping[str, Resource], run: Run, note: Note
) -> tuple[list[BranchEnd], Report]:
    """What has become of each branch of the plan, and what the recovery runs have found and done.

    ``noted``: of each branch what an earlier call has noted, UNKNOWN for nothing. ``resources``: by the names that
    the plan gives them. Raises ResourceLost and ResourceRefused of the broker; a database is waited for instead.
    """
    work = _Settling(plan, noted, resources, note)
    return work.carry_out(run), work.report


class _Settling:
    def __init__(
        self, plan: Sequence[Verdict], noted: Sequence[BranchOutcome], resources: Mapping[str, Resource], note: Note
    ) -> None:
        self._plan = plan
        self._noted = list(noted)
        self._resources = resources
        self._note = note
        self._leave = {verdict.xid.globally for verdict in plan if verdict.by in (By.HAND, By.NONE)}
        self._refused: dict[Verdict, str] = {}
        self.report = Report()

    def carry_out(self, run: Run) -> list[BranchEnd]:
        by_hand = [end for end in self._look() if end.verdict.by is By.HAND]
        for end in by_hand:
            if end.fate is BranchOutcome.PREPARED:
                self._settle(end.verdict)
        for end in self._look():
            if end.verdict.by is By.HAND and end.fate.heuristic and end.settled:
                self._resources[end.verdict.resource].forget(end.verdict.xid)
        self.report = run(self._leave)
        crash_point("settle.recovered")
        return self._look()

    def _settle(self, verdict: Verdict) -> None:
        try:
            self._resources[verdict.resource].settle(verdict.xid, verdict.outcome is BranchOutcome.COMMITTED, "")
        except ResourceRefused as error:
            self._refused[verdict] = str(error)
        crash_point("settle.branch-settled")

    def _look(self) -> list[BranchEnd]:
        """Ask for every branch, and note what is known."""
        lost: dict[str, str] = {}
        ends = [self._end(verdict, noted, lost) for verdict, noted in zip(self._plan, self._noted, strict=True)]
        found = [end.fate for end in ends]
        if found != self._noted:
            self._note(ends)
            self._noted = found
        crash_point("settle.noted")
        return ends

    def _end(self, verdict: Verdict, noted: BranchOutcome, lost: dict[str, str]) -> BranchEnd:
        resource = self._resources[verdict.resource]
        if verdict.resource not in lost:
            try:
                fate = resource.fate(verdict.xid, "")
                if fate is BranchOutcome.UNKNOWN:
                    fate = self._told(resource.name, verdict, noted)
                return self._explained(verdict, fate)
            except (ResourceLost, ResourceRefused) as error:
                if verdict.resource == BROKER:
                    raise
                lost[verdict.resource] = str(error)
        return BranchEnd(
            verdict, BranchOutcome.PREPARED if noted is BranchOutcome.UNKNOWN else noted, lost[verdict.resource]
        )

    def _told(self, resource: str, verdict: Verdict, noted: BranchOutcome) -> BranchOutcome:
        """What the recovery run or an earlier look says of a branch that its resource does not know any more."""
        for row in self.report.rows:
            if (row.resource, row.branch) == (resource, str(verdict.xid)) and row.fate is not BranchOutcome.PREPARED:
                return row.fate
        return BranchOutcome.UNKNOWN if noted is BranchOutcome.PREPARED else noted

    def _explained(self, verdict: Verdict, fate: BranchOutcome) -> BranchEnd:
        end = BranchEnd(verdict, fate)
        why = ""
        if end.contrary:
            why = OTHERWISE
        elif fate is BranchOutcome.UNKNOWN and not end.settled:
            why = NOT_REMEMBERED
        elif fate is BranchOutcome.PREPARED:
            why = self._why_prepared(verdict)
        return BranchEnd(verdict, fate, why)

    def _why_prepared(self, verdict: Verdict) -> str:
        if verdict.outcome is BranchOutcome.UNKNOWN:
            return verdict.reason
        if verdict.by is By.PRIMARY:
            return NOT_YET
        if verdict.by is By.HAND:
            return self._refused.get(verdict, "")
        if verdict.xid.globally in self._leave:
            return LEFT
        told = (
            row.why for row in self.report.rows if row.branch == str(verdict.xid) and row.fate is BranchOutcome.PREPARED
        )
        return next(told, "")
