"""Two-phase commit and recovery, broken at every step: killed, cut off, overtaken by a recovery run.

A transaction at two resources is some twenty steps. Whatever happens at one of them, and at any second one, both
resources end alike, as the coordinator was told if it was told anything, and nothing is left in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from recovery.coordinator.coordinated_branches import CoordinatedBranches, HeuristicTransaction, TransactionRolledBack
from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown
from recovery.coordinator.names import branch_xid, new_global_name, our_name
from recovery.coordinator.recover import BEGAN_A_MOMENT_AGO, Report, recover
from recovery.coordinator.resources import BranchRolledBack, Participant, ResourceLost
from recovery.dtx.errors import OutcomeUnknown
from tests.recovery.coordinator.fakes import Killed, MemoryDecisions, MemoryResource, World
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

COMMITTED, ROLLED_BACK, UNKNOWN = "committed", "rolled back", "unknown"


class Site:
    """A database, a broker, a log; and what a coordinator does with them."""

    def __init__(self) -> None:
        self.world = World()
        self.database = MemoryResource(self.world, "database:1", fences=False)
        self.broker = MemoryResource(self.world, "broker:1", fences=True)
        self.resources = {"database": self.database, "broker": self.broker}
        self.decisions = MemoryDecisions(self.world)
        self.name = ""

    def transact(self, *parts: str) -> str:
        """One transaction; what its coordinator was told."""
        work = CoordinatedBranches(self.decisions, self.resources, patience=0.0)
        self.name = work.name
        try:
            for part in parts or self.resources:
                work.begin(part)
            work.commit()
            told = COMMITTED
        except (Killed, OutcomeUnknown):
            told = UNKNOWN
        except (TransactionRolledBack, ResourceLost):
            told = ROLLED_BACK
            with suppress(Killed):
                work.abandon()
        for resource in self.resources.values():
            resource.lose_session()
        return told

    def recover(self, grace: float = 0.0, forget: bool = False) -> Report:
        return recover(self.decisions, dict(self.resources), grace, forget)

    def fates(self) -> set[BranchOutcome]:
        """What has become of the branches. None may be left in doubt."""
        assert not self.database.branches and not self.broker.branches
        return {*self.database.ended.values(), *self.broker.ended.values()}

    def check(self, told: str) -> None:
        """Both ended alike, and as was told."""
        fates = self.fates()
        assert len(fates) <= 1, "one resource has committed, and the other one has not"
        assert told == UNKNOWN or fates <= {BranchOutcome.COMMITTED if told == COMMITTED else BranchOutcome.ROLLED_BACK}
        assert told != COMMITTED or len(self.database.ended) == len(self.broker.ended) == 1
        assert not self.decisions.unfinished()


def kill(site: Site) -> None:
    site.world.kill()


def lose(site: Site) -> None:
    raise ResourceLost("cut off")


def overtake(site: Site) -> None:
    with suppress(
        DecisionUnknown, DecisionRefused
    ):  # that run is another process: what it does not know is its own affair
        site.recover()


EVENTS: dict[str, Callable[[Site], None]] = {"killed": kill, "cut off": lose, "overtaken": overtake}


def length() -> int:
    """The steps of a transaction that nothing happens to."""
    site = Site()
    assert site.transact() == COMMITTED
    site.check(COMMITTED)
    return site.world.steps


def schedules() -> list[tuple[int, str]]:
    return [(number, event) for number in range(length()) for event in EVENTS]


@pytest.mark.parametrize(("step", "event"), schedules())
def test_whatever_happens_at_any_step(step: int, event: str) -> None:
    site = Site()
    site.world.at[step] = lambda: EVENTS[event](site)
    told = site.transact()
    site.world.revive()
    assert site.recover().settled
    site.check(told)


@pytest.mark.parametrize("first", EVENTS)
@pytest.mark.parametrize("second", EVENTS)
def test_whatever_happens_at_any_two_steps(first: str, second: str) -> None:
    for one in range(length()):
        for other in range(one + 1, length() + 12):  # also while the first recovery run is at work
            site = Site()
            site.world.at = {one: lambda: EVENTS[first](site), other: lambda: EVENTS[second](site)}  # noqa: B023
            told = site.transact()
            with suppress(Killed, DecisionUnknown, DecisionRefused):
                site.recover()
            site.world.revive()
            assert site.recover().settled
            site.check(told)


def test_two_runs_at_once_at_every_step() -> None:
    """The second one begins, and ends, at each step of the first."""
    for crashed in range(length()):
        for step in range(30):
            site = Site()
            site.world.at[crashed] = lambda: kill(site)  # noqa: B023
            told = site.transact()
            site.world.revive()
            site.world.at = {site.world.steps + step: lambda: overtake(site)}  # noqa: B023
            first = site.recover()
            site.world.revive()
            assert not first.contradicted, "what the other one has finished was decided by no other run"
            assert site.recover().rows == []
            site.check(told)


def test_a_branch_alone_is_committed_in_one_phase() -> None:
    for part in ("database", "broker"):
        site = Site()
        assert site.transact(part) == COMMITTED
        assert site.decisions.made == {}
        assert site.fates() == {BranchOutcome.COMMITTED}


def test_what_has_nothing_to_prepare_takes_no_part_in_the_decision() -> None:
    site = Site()
    site.database.empty = True
    asked: list[list[str]] = []

    def decide(name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        asked.append([each.branch for each in participants])
        return commit

    site.decisions.decide = decide  # type: ignore[method-assign]
    assert site.transact() == COMMITTED
    assert asked == [["broker"]]
    site.broker.empty = True
    assert site.transact() == COMMITTED
    assert len(asked) == 1, "no resource has anything to commit"


@pytest.mark.parametrize("part", ["database", "broker"])
def test_one_that_refuses_rolls_everybody_back(part: str) -> None:
    site = Site()
    site.resources[part].refuses = True
    assert site.transact() == ROLLED_BACK
    assert BranchOutcome.COMMITTED not in site.fates()
    assert site.recover().rows == []


def test_an_undecided_transaction_is_left_to_its_coordinator_for_a_while() -> None:
    site = Site()
    prepared(site)
    report = site.recover(grace=60.0)
    assert [row.why for row in report.rows] == [BEGAN_A_MOMENT_AGO] * 2
    assert not report.settled and not site.decisions.made
    assert site.recover(grace=0.0).settled
    assert site.fates() == {BranchOutcome.ROLLED_BACK}


def prepared(site: Site) -> tuple[Xid, Xid]:
    """A transaction of a coordinator that was killed when both had prepared; the branches of database and broker."""

    def reached(step: str) -> None:
        if step == "broker prepared":
            site.world.kill()

    work = CoordinatedBranches(site.decisions, site.resources, reached=reached)
    site.name = work.name
    for part in site.resources:
        work.begin(part)
    with pytest.raises(Killed):
        work.commit()
    site.world.revive()
    return branch_xid(work.name, "database"), branch_xid(work.name, "broker")


def test_a_late_prepare_is_refused_by_the_broker() -> None:
    """A run finds the database prepared and aborts; the broker is asked to prepare only then."""
    site = Site()
    _, broker = prepared(site)
    site.broker.branches[broker] = None
    assert site.recover().settled
    with pytest.raises(BranchRolledBack):
        site.broker.prepare(broker)


def test_what_is_not_ours_is_never_touched() -> None:
    site = Site()
    theirs = [
        Xid(1, b"w.0.x", b"broker"),
        branch_xid(str(new_global_name("another log")), "broker"),
        Xid(branch_xid("x", "y").format_id, b"w", b""),
        Xid(branch_xid("x", "y").format_id, b"w.zz.x", b""),
        Xid(branch_xid("x", "y").format_id, b"w.0a.x", b""),
    ]
    site.broker.branches.update(dict.fromkeys(theirs, BranchOutcome.PREPARED))
    assert site.recover().rows == []
    assert list(site.broker.branches) == theirs
    assert all(our_name(xid, "w") is None for xid in theirs)
    nobody_s = Xid(theirs[-1].format_id, b".1.x", b"broker")
    assert our_name(nobody_s, "w", "") is None, "a table that has no earlier name has none"


@pytest.mark.parametrize("which", [0, 1])
def test_an_operator_s_decision_that_agrees_is_forgotten(which: int) -> None:
    site = Site()
    xid = prepared(site)[which]
    resource = [site.database, site.broker][which]
    resource.decide_heuristically(xid, commit=False)
    report = site.recover()
    assert report.settled and not report.contradicted
    assert resource.forgotten == [xid]


def test_an_operator_s_decision_against_the_log_is_reported_until_it_is_forgotten() -> None:
    site = Site()
    xids = prepared(site)
    site.decisions.decide(site.name, True, [site.database.ticket(xids[0]), site.broker.ticket(xids[1])])
    site.broker.decide_heuristically(xids[1], commit=False)
    for _ in range(2):
        report = site.recover()
        assert [(row.resource, row.fate) for row in report.contradicted] == [
            ("broker:1", BranchOutcome.HEURISTICALLY_ROLLED_BACK)
        ]
        assert site.database.ended[xids[0]] is BranchOutcome.COMMITTED
        assert site.decisions.unfinished()
    assert site.recover(forget=True).contradicted
    assert site.recover().rows == []
    assert not site.decisions.unfinished()


def test_an_operator_s_commit_against_an_abort_is_reported_until_it_is_forgotten() -> None:
    site = Site()
    xids = prepared(site)
    site.broker.decide_heuristically(xids[1], commit=True)
    for forget in (False, False, True):
        report = site.recover(forget=forget)
        assert [(row.resource, row.fate) for row in report.contradicted] == [
            ("broker:1", BranchOutcome.HEURISTICALLY_COMMITTED)
        ]
        assert site.database.ended[xids[0]] is BranchOutcome.ROLLED_BACK
    assert site.recover().rows == []


def test_the_coordinator_is_told_of_an_operator_s_decision() -> None:
    site = Site()
    work = CoordinatedBranches(site.decisions, site.resources, patience=0.0, reached=lambda step: reached(step))

    def reached(step: str) -> None:
        if step == "broker prepared":
            site.broker.decide_heuristically(branch_xid(work.name, "broker"), commit=False)

    for part in site.resources:
        work.begin(part)
    with pytest.raises(HeuristicTransaction) as raised:
        work.commit()
    assert raised.value.fates == {
        "database:1": BranchOutcome.COMMITTED,
        "broker:1": BranchOutcome.HEURISTICALLY_ROLLED_BACK,
    }
    assert [row.resource for row in site.recover().contradicted] == ["broker:1"]


def test_a_commit_waits_in_the_log_for_a_resource_that_is_not_there() -> None:
    site = Site()
    xids = prepared(site)
    site.decisions.decide(site.name, True, [site.database.ticket(xids[0]), site.broker.ticket(xids[1])])
    report = recover(site.decisions, {"broker": site.broker}, 0.0)
    assert report.waiting == [(site.name, "database:1")] and not report.settled
    assert site.decisions.unfinished()
    assert site.recover().settled
    assert not site.decisions.unfinished()


def test_a_commit_that_a_resource_was_not_told_stays_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would be forgotten, and a later run would take the branch that is still prepared for one to roll back."""
    site = Site()

    def lost(xid: Xid, commit: bool, ticket: str) -> BranchOutcome:
        raise ResourceLost

    with monkeypatch.context() as patched:
        patched.setattr(site.database, "settle", lost)
        assert site.transact() == COMMITTED
    assert list(site.decisions.unfinished()) == [site.name]
    assert site.recover().settled
    assert site.fates() == {BranchOutcome.COMMITTED}


def test_who_finds_his_transaction_aborted_rolls_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run had recorded that before a branch was there for it to settle."""
    site = Site()
    monkeypatch.setattr(site.decisions, "decide", lambda name, commit, participants=(): False)
    work = CoordinatedBranches(site.decisions, site.resources, patience=0.0)
    for part in site.resources:
        work.begin(part)
    with pytest.raises(TransactionRolledBack, match="recovery run"):
        work.commit()
    assert site.fates() == {BranchOutcome.ROLLED_BACK}
