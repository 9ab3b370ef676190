"""Settling what a plan says of branches, broken at every step: killed and run again, or overtaken by an operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from recovery.coordinator.names import GlobalName, branch_xid
from recovery.coordinator.recover import BEGAN_A_MOMENT_AGO, Report, recover_with_each
from recovery.coordinator.resources import Participant, ResourceLost, ResourceRefused
from recovery.planner.settle import LEFT, NOT_REMEMBERED, NOT_YET, OTHERWISE, BranchEnd, settle
from recovery.planner.verdicts import BROKER, By, Verdict
from tests.recovery.coordinator.fakes import Killed, MemoryDecisions, MemoryResource, World
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

BANK = "dbname=bank"
LONG_AGO = 1
Ends = dict[tuple[str, str], BranchEnd]


class Site:
    """A broker, a database and a log after a crash; and the plan for their branches, as it was noted last."""

    def __init__(self) -> None:
        self.world = World()
        self.broker = MemoryResource(self.world, "broker:1", fences=True)
        self.database = MemoryResource(self.world, "database:1", fences=False)
        self.decisions = MemoryDecisions(self.world)
        self.plan: list[Verdict] = []
        self.noted: list[BranchOutcome] = []

    def branch(
        self,
        which: str,
        outcome: BranchOutcome,
        by: By,
        fate: BranchOutcome = BranchOutcome.PREPARED,
        at: str = BROKER,
        began: int = LONG_AGO,
        xid: Xid | None = None,
    ) -> Xid:
        """One of the plan, of which this has become by now."""
        part = "broker" if at == BROKER else "database"
        xid = xid or branch_xid(str(GlobalName(self.decisions.whose, began, which)), part)
        place = self.broker if at == BROKER else self.database
        if fate is BranchOutcome.PREPARED:
            place.branches[xid] = fate
        elif fate is not BranchOutcome.UNKNOWN:
            place.ended[xid] = fate
        self.plan.append(Verdict(xid=xid, resource=at, outcome=outcome, by=by, reason=f"the reason of {which}"))
        self.noted.append(BranchOutcome.UNKNOWN)
        return xid

    def decide(self, xid: Xid, commit: bool, *participants: Participant) -> None:
        self.decisions.decide(xid.gtrid.decode(), commit, participants)

    def settle(self, grace: float = 60.0) -> Ends:
        """What is known in the end of each branch, by resource and the second part of its transaction's name."""
        ends, self.report = settle(
            self.plan,
            self.noted,
            {BROKER: self.broker, BANK: self.database},
            lambda leave: self.recover(grace, leave),
            self.note,
        )
        return {(end.verdict.resource, end.verdict.xid.gtrid.split(b".")[-1].decode()): end for end in ends}

    def recover(self, grace: float, leave: Sequence[object] | object) -> Report:
        resources = {"broker": self.broker, "database": self.database}
        return recover_with_each({"log": lambda: self.decisions}, resources, grace, leave=leave)  # type: ignore[arg-type]

    def note(self, ends: Sequence[BranchEnd]) -> None:
        self.world.step()
        self.noted = [end.fate for end in ends]
        self.world.step()


def everything() -> Site:
    """A branch of every kind, and what operators have done to some."""
    site = Site()
    commit, back, people = BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK, BranchOutcome.UNKNOWN
    site.branch("followed", commit, By.HAND)
    site.branch("undone", back, By.HAND)
    site.branch("followed-before", commit, By.HAND, BranchOutcome.HEURISTICALLY_COMMITTED)
    site.branch("undone-before", commit, By.HAND, BranchOutcome.ROLLED_BACK)
    before = site.branch("decided-before", commit, By.RECOVERY, BranchOutcome.HEURISTICALLY_COMMITTED)
    site.decide(before, True, site.broker.ticket(before))
    site.branch("presumed", back, By.RECOVERY)
    site.branch("streamed", commit, By.PRIMARY, BranchOutcome.COMMITTED)
    site.branch("for-people", people, By.NONE)
    site.branch("for-people", people, By.NONE, at=BANK)
    site.branch("foreign", people, By.NONE, xid=Xid(1, b"their.1.foreign", b"b"))
    both = site.branch("logged", commit, By.RECOVERY)
    parts = [site.broker.ticket(both), Participant(site.database.name, "database", "ticket")]
    site.branch("logged", commit, By.RECOVERY, at=BANK)
    site.decide(both, True, *parts)
    return site


EXPECTED = {
    (BROKER, "followed"): BranchOutcome.COMMITTED,
    (BROKER, "undone"): BranchOutcome.ROLLED_BACK,
    (BROKER, "followed-before"): BranchOutcome.HEURISTICALLY_COMMITTED,
    (BROKER, "undone-before"): BranchOutcome.ROLLED_BACK,
    (BROKER, "decided-before"): BranchOutcome.HEURISTICALLY_COMMITTED,
    (BROKER, "presumed"): BranchOutcome.ROLLED_BACK,
    (BROKER, "streamed"): BranchOutcome.COMMITTED,
    (BROKER, "for-people"): BranchOutcome.PREPARED,
    (BANK, "for-people"): BranchOutcome.PREPARED,
    (BROKER, "foreign"): BranchOutcome.PREPARED,
    (BROKER, "logged"): BranchOutcome.COMMITTED,
    (BANK, "logged"): BranchOutcome.COMMITTED,
}


def fates(ends: Ends) -> dict[tuple[str, str], BranchOutcome]:
    return {name: end.fate for name, end in ends.items()}


def test_each_branch_ends_as_was_planned_and_what_is_for_people_is_left() -> None:
    site = everything()
    ends = site.settle()
    assert fates(ends) == EXPECTED
    left = {name for name, end in ends.items() if not end.settled}
    assert left == {(BROKER, "undone-before"), (BROKER, "for-people"), (BANK, "for-people"), (BROKER, "foreign")}
    assert ends[BROKER, "undone-before"].why == OTHERWISE and ends[BROKER, "undone-before"].contrary
    assert ends[BROKER, "foreign"].why == "the reason of foreign" and not ends[BROKER, "foreign"].contrary
    assert not site.decisions.unfinished() and not site.report.waiting
    heuristic = [site.plan[index].xid for index in (2, 4)]
    assert site.broker.forgotten == heuristic, "who decided as was planned need not be remembered"
    assert fates(site.settle()) == EXPECTED


def steps() -> range:
    site = everything()
    before = site.world.steps
    site.settle()
    return range(before, site.world.steps)


@pytest.mark.parametrize("step", steps())
def test_killed_there_and_run_again_it_ends_in_the_same(step: int) -> None:
    undisturbed, site = everything(), everything()
    wanted = undisturbed.settle()
    site.world.at[step] = site.world.kill
    with pytest.raises(Killed):
        site.settle()
    site.world.revive()
    assert site.settle() == wanted
    for mine, theirs in ((site.broker, undisturbed.broker), (site.database, undisturbed.database)):
        assert (mine.branches, mine.ended) == (theirs.branches, theirs.ended)
        assert set(mine.forgotten) == set(theirs.forgotten)
    assert site.decisions.unfinished() == {} and site.noted == undisturbed.noted


@pytest.mark.parametrize("step", steps())
@pytest.mark.parametrize("commit", [True, False])
def test_an_operator_who_is_faster_is_never_overridden(step: int, commit: bool) -> None:
    site = everything()
    decided: list[Xid] = []

    def operator() -> None:
        decided.extend(site.broker.branches)
        for xid in decided:
            site.broker.decide_heuristically(xid, commit)

    site.world.at[step] = operator
    site.settle()
    ends = site.settle()
    theirs = BranchOutcome.HEURISTICALLY_COMMITTED if commit else BranchOutcome.HEURISTICALLY_ROLLED_BACK
    assert {site.broker.ended[xid] for xid in decided} <= {theirs}
    for end in ends.values():
        if end.verdict.xid in decided and end.verdict.outcome is not BranchOutcome.UNKNOWN:
            assert end.contrary is (commit is not (end.verdict.outcome is BranchOutcome.COMMITTED))
            assert end.settled is not end.contrary
            assert (end.verdict.xid in site.broker.forgotten) is end.settled, "a contradiction stays for all to see"


@pytest.mark.parametrize("outcome", [BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK])
def test_what_nobody_remembers_is_said(outcome: BranchOutcome) -> None:
    site = Site()
    site.branch("gone", outcome, By.HAND, BranchOutcome.UNKNOWN)
    [end] = site.settle().values()
    assert (end.settled, end.contrary, end.why) == (False, False, NOT_REMEMBERED)


def test_a_database_s_branch_is_settled_by_hand_too() -> None:
    """Its log says that every participant has made the commit, so a recovery run would not look for it."""
    site = Site()
    site.branch("ended", BranchOutcome.COMMITTED, By.HAND, at=BANK)
    assert fates(site.settle()) == {(BANK, "ended"): BranchOutcome.COMMITTED}


def test_what_people_have_decided_and_forgotten_is_settled() -> None:
    site = Site()
    site.branch("theirs", BranchOutcome.UNKNOWN, By.NONE, BranchOutcome.UNKNOWN)
    site.branch("theirs", BranchOutcome.UNKNOWN, By.NONE, BranchOutcome.UNKNOWN, at=BANK)
    assert all(end.settled and not end.why for end in site.settle().values())


def test_a_branch_of_a_transaction_that_is_for_people_is_left_too() -> None:
    """The log has no decision, so a recovery run would roll it back."""
    site = Site()
    site.branch("theirs", BranchOutcome.UNKNOWN, By.NONE)
    site.branch("theirs", BranchOutcome.ROLLED_BACK, By.RECOVERY, at=BANK)
    ends = site.settle(grace=0)
    assert fates(ends) == {(BROKER, "theirs"): BranchOutcome.PREPARED, (BANK, "theirs"): BranchOutcome.PREPARED}
    assert ends[BANK, "theirs"].why == LEFT and not site.decisions.made


def test_what_began_a_moment_ago_and_what_the_primary_has_to_do_is_waited_for() -> None:
    site = Site()
    site.branch("young", BranchOutcome.ROLLED_BACK, By.RECOVERY, began=int(time.time()))
    site.branch("streamed", BranchOutcome.COMMITTED, By.PRIMARY, xid=Xid(1, b"their.1.streamed", b"b"))
    ends = site.settle()
    assert ends[BROKER, "young"].why == BEGAN_A_MOMENT_AGO and ends[BROKER, "streamed"].why == NOT_YET
    assert not any(end.settled for end in ends.values())


def refusing(site: Site, error: Exception) -> Callable[..., BranchOutcome]:
    def call(*arguments: object) -> BranchOutcome:
        raise error

    return call


def test_a_database_that_is_lost_keeps_nobody_from_being_settled() -> None:
    site = everything()
    site.database.fate = refusing(site, ResourceLost("gone"))  # type: ignore[method-assign]
    ends = site.settle()
    for which in ("logged", "for-people"):
        assert (ends[BANK, which].fate, ends[BANK, which].why) == (BranchOutcome.PREPARED, "gone")
    assert ends[BROKER, "followed"].settled


def test_a_broker_that_is_lost_ends_it() -> None:
    site = everything()
    site.broker.fate = refusing(site, ResourceLost("gone"))  # type: ignore[method-assign]
    with pytest.raises(ResourceLost):
        site.settle()


def test_a_branch_that_the_broker_refuses_to_settle_by_hand_is_said_and_not_rolled_back() -> None:
    site = Site()
    site.branch("followed", BranchOutcome.COMMITTED, By.HAND)
    site.broker.settle = refusing(site, ResourceRefused("409"))  # type: ignore[method-assign]
    [end] = site.settle().values()
    assert (end.fate, end.settled, end.why) == (BranchOutcome.PREPARED, False, "409")
