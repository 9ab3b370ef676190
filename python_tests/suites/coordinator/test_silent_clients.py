"""A client of the database loses its power, and the server does not notice: its transaction holds rows of decisions."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.database_door import DatabaseDoor
from python_tests.suites.coordinator.shop import Shop
from recovery.coordinator import table
from recovery.coordinator.decisions import ABORT_KEPT
from recovery.coordinator.table import TableDecisions


@pytest.fixture
def silent(shop: Shop, postgresql: PostgreSQL) -> Iterator[DatabaseDoor]:
    """The shop's sessions come through a door behind which the server does not hear of their end. They give up at some
    time."""
    with DatabaseDoor(postgresql.port) as door:
        door.silent = True
        there = shop.dsn.replace(f"port={postgresql.port}", f"port={door.port}")
        shop.sessions = orm.sessions(f"{there} options='-c lock_timeout=10s'")
        yield door


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LOCK_SECONDS", 1)


def hold(shop: Shop, statement: str) -> psycopg.Connection[tuple[object, ...]]:
    """A session that holds rows, and will not end by itself."""
    connection = psycopg.connect(shop.dsn)
    connection.execute(statement.encode())
    return connection


def names(shop: Shop) -> set[str]:
    return set(TableDecisions(shop.dsn).unfinished())


def test_one_stuck_decision_does_not_end_the_run(shop: Shop) -> None:
    """A client that is gone holds the row of a decision; the run settles what else there is, and says what it left."""
    shop.place("a")
    [stuck] = names(shop)
    shop.broker.finished.clear()  # another process goes on
    with hold(shop, "DELETE FROM txha_decisions") as connection:
        reports = []
        shop.at["database committed"] = lambda: reports.append(shop.recover())
        shop.place("b")
        [report] = reports
        assert [(row.transaction != stuck, row.decision, row.fate.word) for row in report.rows] == [
            (True, "commit", "committed")
        ]
        assert [name for name, _ in report.waiting] == [stuck] and "another session" in report.waiting[0][1]
        assert not report.settled and report.unreachable == {}
        connection.rollback()
    assert shop.recover().settled and names(shop) == set()
    assert shop.look() == (2, 2)


def test_old_aborts_that_cannot_be_removed_yet_do_not_end_the_run(shop: Shop) -> None:
    with psycopg.connect(shop.dsn) as connection:
        query = "INSERT INTO txha_decisions VALUES ('old', false, null, null, now() - make_interval(secs => %s))"
        connection.execute(query, (2 * ABORT_KEPT,))
    with hold(shop, "SELECT FROM txha_decisions FOR UPDATE") as connection:
        assert shop.recover().settled
        assert TableDecisions(shop.dsn).decision("old") is not None
        connection.rollback()
    assert shop.recover().settled
    assert TableDecisions(shop.dsn).decision("old") is None


def test_a_transaction_does_not_wait_for_what_a_lost_one_was_to_remove(shop: Shop, silent: DatabaseDoor) -> None:
    """The connection is lost behind the removal of an older row: the next transaction does not try that again."""
    shop.place("a")
    [older] = names(shop)
    silent.lose_request = b"INSERT INTO public.txha_decisions"
    with pytest.raises((OperationalError, psycopg.OperationalError)):
        shop.place("b")
    assert silent.lost == 1
    shop.place("c")
    assert shop.look() == (2, 2)
    assert older in names(shop) and len(names(shop)) == 2
