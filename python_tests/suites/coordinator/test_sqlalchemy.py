"""SQLAlchemy through zope.sqlalchemy commits together with a broker, whatever dies, and whichever is faster."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import count
from typing import Any

import psycopg
import pytest
import transaction
from sqlalchemy.exc import IntegrityError
from transaction.interfaces import TransientError

from python_tests.harness.pika_clients import parameters
from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.orm import STEPS_OF_ORM, Order
from python_tests.suites.coordinator.shop import Shop
from recovery.coordinator import table
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.data_manager import TransactionalBroker
from recovery.coordinator.recover import NOT_KNOWN, Report, recover
from recovery.coordinator.table import TableDecisions
from recovery.dtx.with_pika import DtxConnection

COMMITTED, ROLLED_BACK = 1, 0
NUMBERS = (f"order-{number}" for number in count())


def test_both_commit(shop: Shop) -> None:
    for number in ("a", "b", "c"):
        shop.place(number)
    assert shop.look() == (3, 3)
    assert shop.decisions() == 1, "each transaction takes away the row of the one before"
    assert shop.recover().settled
    assert shop.decisions() == 0


def test_rows_are_taken_away_where_they_are(shop: Shop) -> None:
    """One broker in the transactions of two applications, each with a table of its own."""
    elsewhere = f"{shop.dsn} options='-c search_path=other'"
    others = orm.sessions(elsewhere)
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
        try:
            orm.prepare_tables(elsewhere)
            for sessions, number in ((shop.sessions, "a"), (others, "b"), (shop.sessions, "c")):
                with transaction.manager:
                    orm.place(shop.broker, sessions(), shop.queue.own, number)
            assert shop.look() == (2, 3)
            assert shop.decisions() == 1
        finally:
            others.kw["bind"].dispose()
            connection.execute("DROP SCHEMA other CASCADE")


def test_an_exception_rolls_both_back_and_the_next_one_commits(shop: Shop) -> None:
    with pytest.raises(ZeroDivisionError), transaction.manager:
        orm.place(shop.broker, shop.sessions(), shop.queue.own, "a")
        raise ZeroDivisionError
    assert shop.look() == (0, 0)
    shop.place("a")
    assert shop.look() == (1, 1)


def test_only_a_message(shop: Shop) -> None:
    """The session has nothing new, and commits all the same: its commit is the decision."""
    with transaction.manager:
        shop.broker.join(shop.sessions()).basic_publish("", shop.queue.own, b"a")
    assert shop.look() == (0, 1)


def test_only_a_row(shop: Shop) -> None:
    """The broker has nothing to prepare."""
    with transaction.manager:
        session = shop.sessions()
        shop.broker.join(session)
        session.add(Order(number="a", customer="a"))
    assert shop.look() == (1, 0)
    assert shop.decisions() == 0


class SaysNo:
    """A data manager that votes no, after the broker and before the session."""

    transaction_manager = transaction.manager

    def sortKey(self) -> str:
        return "u"

    def tpc_vote(self, transaction: Any) -> None:
        raise TransientError("no")

    def nothing(self, transaction: Any) -> None:
        """Nothing to do."""

    tpc_begin = commit = tpc_finish = tpc_abort = abort = nothing


def test_a_no_of_anybody_rolls_both_back(shop: Shop) -> None:
    with pytest.raises(TransientError):
        shop.place("a", SaysNo())
    assert shop.look() == (0, 0)


def test_a_commit_that_is_refused_at_the_end(shop: Shop) -> None:
    """The constraint is looked at when the database commits: the broker has prepared, and the row is inserted."""
    shop.place("a")
    assert shop.look() == (1, 1)
    with pytest.raises(IntegrityError), transaction.manager:
        session = shop.sessions()
        shop.broker.join(session).basic_publish("", shop.queue.own, b"b")
        session.add(Order(number="b", customer="a"))
    assert shop.look() == (1, 1)
    assert shop.queue.open().in_doubt() == []


def test_a_session_in_two_phases_is_refused(shop: Shop) -> None:
    with pytest.raises(ValueError, match="two-phase"), transaction.manager:
        shop.broker.join(orm.sessions(shop.dsn, twophase=True)())


def test_a_recovery_run_that_is_faster_rolls_both_back(shop: Shop) -> None:
    shop.at["broker prepared"] = shop.recover
    with pytest.raises(psycopg.errors.UniqueViolation):
        shop.place("a")
    assert shop.look() == (0, 0)


def test_a_recovery_run_waits_for_an_open_transaction(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LOCK_SECONDS", 1)
    reports: list[Report] = []
    shop.at["decision written"] = lambda: reports.append(shop.recover())
    shop.place("a")
    assert [row.why.endswith("is still open in the database") for row in reports[0].rows] == [True]
    assert shop.look() == (1, 1)


def test_a_recovery_run_behind_the_commit_does_what_is_left(shop: Shop) -> None:
    shop.at["database committed"] = shop.recover
    shop.place("a")
    assert shop.look() == (1, 1)


@pytest.mark.parametrize("step", STEPS_OF_ORM)
def test_sigkill_at_each_step(shop: Shop, step: str) -> None:
    number = next(NUMBERS)
    module = "python_tests.suites.coordinator.orm"
    command = [sys.executable, "-m", module, shop.dsn, ",".join(shop.urls), shop.queue.own]
    ended = subprocess.run([*command, number, "--die-at", step], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert shop.recover().settled
    assert shop.look() == ((1, 1) if step in ("database committed", "broker committed") else (0, 0))
    assert shop.decisions() == 0


@pytest.mark.parametrize(("step", "left"), [("broker prepared", (0, 0)), ("database committed", (1, 1))])
def test_sigkill_of_the_database(shop: Shop, postgresql: PostgreSQL, step: str, left: tuple[int, int]) -> None:
    def kill() -> None:
        postgresql.kill()
        postgresql.start()

    shop.at[step] = kill
    if left == (0, 0):
        with pytest.raises((psycopg.OperationalError, TransactionRolledBack)):
            shop.place("a")
    else:
        shop.place("a")
    assert shop.recover().settled
    assert shop.look() == left


def test_an_outcome_that_the_broker_does_not_know_is_not_success(shop: Shop) -> None:
    """The branch was rolled back, and forgotten, behind the database's commit: the row stays, and the run says so."""

    def roll_back_and_forget() -> None:
        with DtxConnection(*map(parameters, shop.urls)) as client:
            (xid,) = client.tpc_recover()
            client.tpc_rollback(xid)
            client.forget(xid)

    shop.at["database committed"] = roll_back_and_forget
    shop.place("a")
    assert shop.look() == (1, 0) and shop.decisions() == 1
    shop.at.clear()
    shop.place("b")
    report = shop.recover()
    assert not report.settled and [row.why for row in report.rows] == [NOT_KNOWN]
    assert shop.decisions() == 1
    recover(TableDecisions(shop.dsn), {"broker": shop.queue.open()}, 0.0, forget=True)
    assert shop.decisions() == 0


def test_join_again_gives_the_same_channel(shop: Shop) -> None:
    with transaction.manager:
        session = shop.sessions()
        assert isinstance(shop.broker, TransactionalBroker)
        assert shop.broker.join(session) is shop.broker.join(session)
