"""PostgreSQL and brokers as a coordinator uses them, through real connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator.pooler import Pooler
from python_tests.suites.coordinator.resources import Place, Queue, Table
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.names import branch_xid, is_unique, new_global_name
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.recover import Report, recover
from recovery.coordinator.resources import (
    BranchRolledBack,
    Participant,
    Resource,
    ResourceLost,
    ResourceRefused,
)
from tests.recovery.coordinator.fakes import MemoryDecisions, World
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

NOT_COMMITTED = (BranchOutcome.ROLLED_BACK, BranchOutcome.UNKNOWN)


def new_xid(whose: str = "test") -> Xid:
    return branch_xid(str(new_global_name(whose)), "branch")


@pytest.fixture(params=["database", "broker"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "database":
        place: Place = Table(request.getfixturevalue("postgresql").dsn)
    else:
        place = Queue(request.getfixturevalue("urls"))
    yield place
    place.close()


def prepared(place: Place, resource: Resource, xid: Xid) -> Participant:
    resource.begin(xid)
    place.work(resource)
    participant = resource.prepare(xid)
    assert participant is not None
    assert (participant.resource, participant.branch) == (resource.name, "branch")
    return participant


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("by", ["who prepared", "another"])
def test_a_prepared_branch_is_settled(place: Place, commit: bool, by: str) -> None:
    worker, xid = place.open(), new_xid()
    participant = prepared(place, worker, xid)
    assert place.look() == []
    settler = worker if by == "who prepared" else place.open()
    assert settler is worker or xid in settler.in_doubt()
    assert settler.settle(xid, commit, participant.ticket) is (
        BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK
    )
    assert place.look() == (["word"] if commit else [])
    for late in (place.open(), worker):
        assert late.settle(xid, commit, participant.ticket) in ((BranchOutcome.COMMITTED,) if commit else NOT_COMMITTED)
        assert late.fate(xid, participant.ticket) in ((BranchOutcome.COMMITTED,) if commit else NOT_COMMITTED)
        assert xid not in late.in_doubt()


@pytest.mark.parametrize("by", ["an operator", "a global decision"])
def test_who_finds_his_branch_rolled_back_goes_on(urls: list[str], by: str) -> None:
    """An operator has rolled it back between prepare and commit, and left no trace that has to be forgotten."""
    place = Queue(urls)
    worker, other, xid = place.open(), place.open(), new_xid()
    participant = prepared(place, worker, xid)
    if by == "an operator":
        assert other.settle(xid, False, "") is BranchOutcome.ROLLED_BACK
    else:
        other.fence(xid)
    assert worker.settle(xid, True, participant.ticket) in NOT_COMMITTED
    again = new_xid()
    assert worker.settle(again, True, prepared(place, worker, again).ticket) is BranchOutcome.COMMITTED
    assert place.look() == ["word"]
    place.close()


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_comes_late_is_told_the_other_one(place: Place, commit: bool) -> None:
    worker, xid = place.open(), new_xid()
    participant = prepared(place, worker, xid)
    place.open().settle(xid, commit, participant.ticket)
    told = BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK
    for late in (worker, place.open()):
        assert late.settle(xid, not commit, participant.ticket) is told
    assert place.look() == (["word"] if commit else [])


def test_a_branch_without_work_has_nothing_to_prepare(place: Place) -> None:
    worker, xid = place.open(), new_xid()
    worker.begin(xid)
    assert worker.prepare(xid) is None
    assert xid not in worker.in_doubt()


def test_one_phase(place: Place) -> None:
    worker, xid = place.open(), new_xid()
    worker.begin(xid)
    place.work(worker)
    worker.commit_in_one_phase(xid)
    assert place.look() == ["word"]


@pytest.mark.parametrize("prepare", [True, False])
def test_a_branch_is_abandoned_and_the_connection_goes_on(place: Place, prepare: bool) -> None:
    worker, xid = place.open(), new_xid()
    worker.begin(xid)
    place.work(worker)
    if prepare:
        worker.prepare(xid)
    worker.abandon(xid)
    assert place.look() == []
    other = new_xid()
    worker.settle(other, True, prepared(place, worker, other).ticket)
    assert place.look() == ["word"]


def test_a_branch_left_in_the_middle_does_not_stand_in_the_way(place: Place) -> None:
    worker, xid = place.open(), new_xid()
    worker.begin(new_xid())
    place.work(worker)
    worker.begin(xid)
    place.work(worker)
    worker.commit_in_one_phase(xid)
    assert place.look() == ["word"]


def test_two_ways_to_one_resource_have_one_name(postgresql: PostgreSQL, urls: list[str]) -> None:
    names = {Broker(url).name for url in urls}
    assert len(names) == 1 and all(map(is_unique, names)), "by its identity, and not by its name alone"
    here, there = Postgresql(postgresql.dsn), Postgresql(postgresql.dsn.replace("127.0.0.1", "localhost"))
    assert here.name == there.name
    assert Postgresql(postgresql.dsn.replace("dbname=bank", "dbname=postgres")).name != here.name


def test_who_does_not_answer_is_lost(place: Place) -> None:
    absent: Resource = Broker("amqp://127.0.0.1:1/", patience=0.1) if isinstance(place, Queue) else Postgresql("port=1")
    for ask in (lambda: absent.name, absent.in_doubt, lambda: absent.begin(new_xid())):
        with pytest.raises(ResourceLost):
            ask()


# -- PostgreSQL's own ways


@pytest.fixture
def table(postgresql: PostgreSQL) -> Iterator[Table]:
    table = Table(postgresql.dsn)
    yield table
    table.close()


@pytest.mark.parametrize("ask", [Postgresql.prepare, Postgresql.commit_in_one_phase])
def test_a_failed_statement_rolls_back(table: Table, ask: Callable[[Postgresql, Xid], object]) -> None:
    """PostgreSQL itself answers the COMMIT of such a transaction with ROLLBACK, and psycopg raises nothing."""
    worker, xid = Postgresql(table.dsn), new_xid()
    worker.begin(xid)
    table.work(worker)
    with pytest.raises(psycopg.Error):
        worker.connection.execute("SELECT 1 / 0")
    with pytest.raises(BranchRolledBack):
        ask(worker, xid)
    worker.abandon(xid)
    assert table.look() == []
    worker.close()


@pytest.mark.parametrize("ask", [Postgresql.prepare, Postgresql.commit_in_one_phase])
def test_a_deferred_constraint_refuses(table: Table, ask: Callable[[Postgresql, Xid], object]) -> None:
    worker, xid = Postgresql(table.dsn), new_xid()
    constraint = f"ALTER TABLE {table.own} ADD UNIQUE (word) DEFERRABLE INITIALLY DEFERRED"
    with psycopg.connect(table.dsn) as connection:
        connection.execute(constraint.encode())
    worker.begin(xid)
    table.work(worker)
    table.work(worker)
    with pytest.raises(BranchRolledBack, match="duplicate"):
        ask(worker, xid)
    worker.abandon(xid)
    assert table.look() == []
    assert xid not in worker.in_doubt()
    worker.close()


def test_an_administrator_s_rollback_is_found_by_the_ticket(table: Table) -> None:
    worker, xid = table.open(), new_xid()
    participant = prepared(table, worker, xid)
    with psycopg.connect(table.dsn, autocommit=True) as connection:
        connection.tpc_rollback(connection.xid(xid.format_id, xid.gtrid.decode(), xid.bqual.decode()))
    assert worker.settle(xid, True, participant.ticket) is BranchOutcome.ROLLED_BACK
    assert worker.fate(xid, str(1 << 60)) is BranchOutcome.UNKNOWN, "a ticket of another life"


def test_branches_of_another_database_are_not_seen(postgresql: PostgreSQL, table: Table) -> None:
    worker, xid = table.open(), new_xid()
    prepared(table, worker, xid)
    other = Postgresql(postgresql.dsn.replace("dbname=bank", "dbname=postgres"))
    assert xid in table.open().in_doubt()
    assert xid not in other.in_doubt()
    worker.abandon(xid)
    other.close()


def test_a_pooler_s_alias_hides_no_branch(table: Table) -> None:
    """The coordinator that prepared came by way of it, and so does the recovery run."""
    with Pooler(table.dsn, alias="app") as pooler:
        worker, xid = Postgresql(pooler.dsn), new_xid("alias")
        assert worker.connection.info.dbname == "app"
        participant = prepared(table, worker, xid)
        worker.close()
        by_alias, itself = Postgresql(pooler.dsn), table.open()
        assert xid in by_alias.in_doubt() and xid in itself.in_doubt()
        assert by_alias.name == itself.name == participant.resource
        assert by_alias.fate(xid, participant.ticket) is BranchOutcome.PREPARED
        report = recover(Nothing(), {"database": by_alias}, 0.0)
        assert [row.fate for row in report.rows] == [BranchOutcome.ROLLED_BACK] and report.settled
        by_alias.close()
    assert xid not in itself.in_doubt() and table.look() == []


class Nothing(MemoryDecisions):
    """Decisions of coordinators that died before they made one."""

    whose = "alias"

    def __init__(self) -> None:
        super().__init__(World())


def test_a_role_that_may_not_settle_is_refused(table: Table) -> None:
    with psycopg.connect(table.dsn) as connection:
        connection.execute("DO $$ BEGIN CREATE ROLE stranger LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    worker, xid = table.open(), new_xid()
    prepared(table, worker, xid)
    stranger = Postgresql(table.dsn.replace("user=owner", "user=stranger"))
    with pytest.raises(ResourceRefused, match="permission"):
        stranger.settle(xid, True, "")
    assert xid in stranger.in_doubt()
    assert stranger.name == worker.name
    worker.abandon(xid)
    stranger.close()


def test_a_killed_server_is_lost_and_its_branch_is_there_again(table: Table, postgresql: PostgreSQL) -> None:
    worker, xid = table.open(), new_xid()
    participant = prepared(table, worker, xid)
    postgresql.kill()
    with pytest.raises(ResourceLost):
        worker.settle(xid, True, participant.ticket)
    with pytest.raises(ResourceLost):
        worker.settle(xid, True, participant.ticket)
    postgresql.start()
    assert worker.settle(xid, True, participant.ticket) is BranchOutcome.COMMITTED
    assert table.look() == ["word"]


# -- recovery runs on real resources


@pytest.mark.parametrize("commit", [True, False])
def test_runs_at_once_settle_everything_once(place: Place, commit: bool, tmp_path: Path) -> None:
    """Four of them, each with connections of its own, and branches of others in between."""
    log = DecisionLog(tmp_path / "log")
    foreign = new_xid("another")
    keeper = place.open()
    prepared(place, keeper, foreign)
    for _ in range(10):
        worker, xid = place.open(), new_xid(log.whose)
        participant = prepared(place, worker, xid)
        if commit:
            log.decide(xid.gtrid.decode(), True, [participant])
        worker.close()
    reports: list[Report] = []

    def run() -> None:
        reports.append(recover(DecisionLog(tmp_path / "log"), {"resource": place.open()}, 0.0))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(reports) == 4 and not any(report.contradicted for report in reports)
    last = recover(log, {"resource": place.open()}, 0.0)
    assert last.settled and last.rows == []
    assert log.unfinished() == {}
    assert place.look() == ["word"] * 10 * commit
    assert place.open().in_doubt().count(foreign) == 1, "what is not ours is never touched"
    keeper.abandon(foreign)
