"""What a recovery run takes for known: by the log, by resources, by clocks, and by names."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from recovery.coordinator.coordinated_branches import CoordinatedBranches, HeuristicTransaction, TransactionRolledBack
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.decisions import LONGEST_TRANSACTION, Decisions
from recovery.coordinator.names import (
    GlobalName,
    branch_xid,
    broker_name,
    is_unique,
    may_be,
    new_global_name,
    without_identity,
)
from recovery.coordinator.recover import BEGAN_A_MOMENT_AGO, NOT_KNOWN, recover
from recovery.coordinator.resources import Resource, ResourceLost
from tests.recovery.coordinator.fakes import MemoryDecisions, MemoryResource, World
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

IDENTITY, OTHER_IDENTITY = "0123456789abcdef" * 2, "fedcba9876543210" * 2


class Site:
    """A database and a broker, and one transaction for which both have prepared."""

    def __init__(self, decisions: Decisions | None = None, broker: str = "broker:1", began: int | None = None) -> None:
        world = World()
        self.decisions = decisions or MemoryDecisions(world)
        self.database = MemoryResource(world, "database:1", fences=False)
        self.broker = MemoryResource(world, broker, fences=True)
        self.resources: dict[str, Resource] = {"database": self.database, "broker": self.broker}
        name = new_global_name(self.decisions.whose)
        self.name = str(name if began is None else GlobalName(name.whose, began, name.which))
        self.of_database, self.of_broker = (branch_xid(self.name, part) for part in self.resources)
        for resource, xid in ((self.database, self.of_database), (self.broker, self.of_broker)):
            resource.begin(xid)
            resource.prepare(xid)

    def decide(self, broker: str = "") -> None:
        """To commit. ``broker``: the name that the decision gives to the broker, if it is not its own."""
        who = self.broker.ticket(self.of_broker)
        who = who if not broker else who._replace(resource=broker)
        assert self.decisions.decide(self.name, True, [self.database.ticket(self.of_database), who])

    def operator(self, commit: bool) -> None:
        """An operator decides the broker's branch."""
        self.broker.decide_heuristically(self.of_broker, commit)


# -- by the log


def test_a_branch_that_comes_back_with_a_standby_is_committed(tmp_path: Path) -> None:
    """PostgreSQL went on with a standby that has the PREPARE, and not the COMMIT PREPARED that was answered."""
    site = Site(DecisionLog(tmp_path / "log"))
    site.decide()
    for resource, xid in ((site.database, site.of_database), (site.broker, site.of_broker)):
        resource.settle(xid, True, "")
    site.decisions.finish(site.name)
    del site.database.ended[site.of_database]
    site.database.branches[site.of_database] = BranchOutcome.PREPARED
    report = recover(DecisionLog(tmp_path / "log"), site.resources, 0.0)
    assert report.settled and [(row.decision, row.fate) for row in report.rows] == [("commit", BranchOutcome.COMMITTED)]
    assert site.database.ended[site.of_database] is BranchOutcome.COMMITTED
    assert recover(DecisionLog(tmp_path / "log"), site.resources, 0.0).rows == []


# -- by resources


def test_unknown_is_not_success() -> None:
    """An operator rolls the broker's branch back behind the decision, and makes the broker forget it."""
    site = Site()

    def reached(step: str) -> None:
        if step == "database committed":
            xid = branch_xid(work.name, "broker")
            site.broker.decide_heuristically(xid, commit=False)
            site.broker.forget(xid)

    work = CoordinatedBranches(site.decisions, site.resources, patience=0.0, reached=reached)
    for part in site.resources:
        work.begin(part)
    with pytest.raises(HeuristicTransaction) as raised:
        work.commit()
    assert raised.value.fates == {"database:1": BranchOutcome.COMMITTED, "broker:1": BranchOutcome.UNKNOWN}
    assert work.name in site.decisions.unfinished()


def test_what_is_not_known_is_reported_until_it_is_forgotten() -> None:
    site = Site()
    site.decide()
    site.operator(commit=False)
    site.broker.forget(site.of_broker)
    for forget in (False, False, True):
        report = recover(site.decisions, site.resources, 0.0, forget)
        assert not report.settled and not report.contradicted
        assert [row.why for row in report.rows if row.resource == "broker:1"] == [NOT_KNOWN]
    assert site.database.ended[site.of_database] is BranchOutcome.COMMITTED
    assert recover(site.decisions, site.resources, 0.0).rows == [] and not site.decisions.unfinished()


def test_what_an_operator_decided_is_remembered_until_the_commit_has_finished() -> None:
    """Else the next run does not know any more that it was as had been decided."""
    site = Site()
    site.decide()
    site.operator(commit=True)
    report = recover(site.decisions, {"broker": site.broker}, 0.0)
    assert [(row.fate, row.contradicted) for row in report.rows] == [(BranchOutcome.HEURISTICALLY_COMMITTED, False)]
    assert report.waiting and not site.broker.forgotten
    assert recover(site.decisions, site.resources, 0.0).settled
    assert site.broker.forgotten == [site.of_broker] and not site.decisions.unfinished()
    assert recover(site.decisions, site.resources, 0.0).rows == []


class Overtaken(MemoryResource):
    """Another run finishes the commit, and forgets, just before this one asks."""

    site: Site

    def fate(self, xid: Xid, ticket: str) -> BranchOutcome:
        self.site.decisions.finish(self.site.name)
        self.forget(xid)
        return super().fate(xid, ticket)


def test_what_another_run_has_finished_is_known() -> None:
    site = Site()
    site.decide()
    for resource, xid in ((site.database, site.of_database), (site.broker, site.of_broker)):
        resource.settle(xid, True, "")
    overtaken = Overtaken(site.broker.world, "broker:1", fences=True)
    overtaken.site = site
    report = recover(site.decisions, {"database": site.database, "broker": overtaken}, 0.0)
    assert report.settled and report.rows == []


class FoundTooEarly(MemoryResource):
    """Between what it lists and what is done about it, the coordinator commits, finishes, and forgets."""

    site: Site

    def in_doubt(self) -> list[Xid]:
        found = super().in_doubt()
        self.site.decide()
        for resource, xid in ((self.site.database, self.site.of_database), (self, self.site.of_broker)):
            resource.settle(xid, True, "")
        self.site.decisions.finish(self.site.name)
        assert isinstance(self.site.decisions, MemoryDecisions)
        self.site.decisions.ended.clear()
        return found


def test_what_was_committed_and_forgotten_meanwhile_is_not_refused_from_then_on() -> None:
    """The run records an abort, which comes too late for all participants. No broker is told that it was rolled
    back."""
    site = Site()
    broker = FoundTooEarly(site.broker.world, "broker:1", fences=True)
    broker.site, broker.branches = site, site.broker.branches
    report = recover(site.decisions, {"database": site.database, "broker": broker}, 0.0)
    assert report.settled and report.rows == [] and not broker.fenced
    assert site.database.ended[site.of_database] is broker.ended[site.of_broker] is BranchOutcome.COMMITTED


# -- by clocks


def test_a_coordinator_s_clock_far_ahead_keeps_no_branch() -> None:
    for ahead, left in ((-61, False), (-30, True), (30, True), (61, False), (10_000_000, False)):
        site = Site(began=int(time.time()) + ahead)
        report = recover(site.decisions, site.resources, 60.0)
        assert report.settled is not left
        assert {row.why for row in report.rows} == {BEGAN_A_MOMENT_AGO if left else ""}
        assert (site.database.ended.get(site.of_database) is BranchOutcome.ROLLED_BACK) is not left


def test_a_transaction_that_is_too_old_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery run may have recorded its abort, which is forgotten by then."""
    site = Site()
    work = CoordinatedBranches(site.decisions, site.resources, patience=0.0)
    for part in site.resources:
        work.begin(part)
    late = time.clock_gettime(time.CLOCK_BOOTTIME) + LONGEST_TRANSACTION + 1
    monkeypatch.setattr(time, "clock_gettime", lambda clock: late)
    with pytest.raises(TransactionRolledBack, match="too old"):
        work.commit()
    assert site.decisions.decision(work.name) is None
    for resource, part in ((site.database, "database"), (site.broker, "broker")):
        assert resource.ended[branch_xid(work.name, part)] is BranchOutcome.ROLLED_BACK


# -- by names


def test_two_clusters_under_one_name_are_two() -> None:
    """Two sites called theirs ``orders``; both are asked, whichever comes first."""
    site = Site(broker=broker_name("orders", IDENTITY))
    site.decide()
    other = MemoryResource(site.broker.world, broker_name("orders", OTHER_IDENTITY), fences=True)
    assert not recover(site.decisions, {"other": other, "database": site.database}, 0.0).settled
    assert site.decisions.unfinished()
    report = recover(site.decisions, {"other": other, "ours": site.broker, "database": site.database}, 0.0)
    assert report.settled and site.broker.ended[site.of_broker] is BranchOutcome.COMMITTED
    assert not site.decisions.unfinished()


def test_two_addresses_of_one_cluster_are_one() -> None:
    """What is settled by way of one is not asked for, and told of, by way of the other again."""
    site = Site(broker=broker_name("orders", IDENTITY))
    report = recover(site.decisions, {"one": site.broker, "database": site.database, "other": site.broker}, 0.0)
    assert report.settled and sorted(row.resource for row in report.rows) == [site.broker.name, site.database.name]


@pytest.mark.parametrize("decided", ["amqp:orders", ""])
def test_who_tells_no_identity_may_be_anybody(decided: str) -> None:
    """Neither does a broker of an earlier version, nor a decision that names one."""
    site = Site(broker="amqp:orders" if not decided else broker_name("orders", IDENTITY))
    site.decide(decided)
    same = "amqp:orders" if not decided else broker_name("orders", OTHER_IDENTITY)
    other = MemoryResource(site.broker.world, same, fences=True)
    report = recover(site.decisions, {"other": other, "database": site.database}, 0.0)
    assert [row.why for row in report.rows if row.resource == same] == [NOT_KNOWN]
    assert site.decisions.unfinished()
    report = recover(site.decisions, {"other": other, "ours": site.broker, "database": site.database}, 0.0)
    assert report.settled and site.broker.ended[site.of_broker] is BranchOutcome.COMMITTED
    assert not site.decisions.unfinished()


def test_one_of_two_that_cannot_be_asked_is_waited_for() -> None:
    """It may be the one."""
    site = Site(broker="amqp:orders")
    site.decide()
    other = MemoryResource(site.broker.world, "amqp:orders", fences=True)

    def lost(xid: Xid, ticket: str) -> BranchOutcome:
        raise ResourceLost("cut off")

    site.broker.branches.clear()
    site.broker.fate = lost  # type: ignore[method-assign]
    report = recover(site.decisions, {"other": other, "ours": site.broker, "database": site.database}, 0.0)
    assert report.waiting == [(site.name, "amqp:orders")] and site.decisions.unfinished()


def test_names_of_brokers() -> None:
    whole = broker_name("a/b", IDENTITY)
    assert whole == f"amqp:a/b/{IDENTITY}"
    assert without_identity(whole) == broker_name("a/b", "") == "amqp:a/b"
    assert is_unique(whole) and is_unique("postgresql:1/bank") and not is_unique("amqp:a/b")
    assert may_be(whole, whole) and may_be("amqp:a/b", whole) and not may_be(whole, "amqp:a/b")
    assert not may_be(broker_name("a/b", OTHER_IDENTITY), whole)
    assert not may_be("postgresql:1", "postgresql:1/bank")


@pytest.mark.parametrize("grace", [-5, math.inf, math.nan, "x", None, True])
def test_a_grace_that_cannot_be_is_refused(grace: Any) -> None:
    """Before any resource is asked, and anything is settled: of a text only a run that finds a branch would have said
    so."""
    site = Site()
    with pytest.raises((TypeError, ValueError), match=r"^grace "):
        recover(site.decisions, site.resources, grace)
    assert site.broker.fate(site.of_broker, "") is BranchOutcome.PREPARED
