"""A database whose settings are not PostgreSQL's own: a decision is durable all the same, and is met like any other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import transaction
from sqlalchemy import event, text

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.harness.waiting import wait_until
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.database_door import DatabaseDoor
from python_tests.suites.coordinator.shop import Shop
from recovery.coordinator import table
from recovery.coordinator.data_manager import TransactionalBroker
from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown
from recovery.coordinator.own_statements import make_durable
from recovery.coordinator.recover import Report
from recovery.coordinator.table import TableDecisions


@contextmanager
def setting(dsn: str, name: str, value: str) -> Iterator[None]:
    """What connections to the database begin with."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE bank SET {name} = '{value}'".encode())
    try:
        yield
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE bank RESET {name}".encode())


@pytest.fixture
def lazy_writer(postgresql: PostgreSQL) -> Iterator[None]:
    """What no commit has synced is on the disk only after a while."""
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        connection.execute("SELECT pg_reload_conf()")
    yield
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET wal_writer_delay")
        connection.execute("SELECT pg_reload_conf()")


def test_a_decision_is_durable_with_synchronous_commit_off(
    shop: Shop, postgresql: PostgreSQL, lazy_writer: None
) -> None:
    """The database is killed right behind the broker's commit."""

    def kill() -> None:
        postgresql.kill()
        postgresql.start()

    with setting(postgresql.dsn, "synchronous_commit", "off"):
        shop.at["broker committed"] = kill
        shop.place("a")
    assert shop.look() == (1, 1)
    assert shop.recover().settled


@pytest.mark.parametrize("sql", ["RESET ALL", "SET LOCAL synchronous_commit = off", "SET synchronous_commit = off"])
def test_a_listener_takes_the_sync_back(shop: Shop, postgresql: PostgreSQL, lazy_writer: None, sql: str) -> None:
    """It runs behind the decision's row, right before the commit; the database is killed behind that."""

    def kill() -> None:
        postgresql.kill()
        postgresql.start()

    with setting(postgresql.dsn, "synchronous_commit", "off"):
        shop.at["broker committed"] = kill
        session = shop.sessions()
        event.listen(session, "before_commit", lambda each: each.execute(text(sql)))
        with transaction.manager:
            orm.place(shop.broker, session, shop.queue.own, "a")
    assert shop.look() == (1, 1)
    assert shop.recover().settled


def test_an_abort_is_durable_with_synchronous_commit_off(
    shop: Shop, postgresql: PostgreSQL, lazy_writer: None
) -> None:
    """A session that is given it acts on it."""
    with setting(postgresql.dsn, "synchronous_commit", "off"):
        decisions = TableDecisions(shop.dsn)
        assert decisions.decide("aborted", False) is False
        postgresql.kill()
        postgresql.start()
        found = decisions.decision("aborted")
    with psycopg.connect(shop.dsn) as connection:
        connection.execute("DELETE FROM txha_decisions")
    assert found is not None and not found.commit


@pytest.mark.parametrize(("was", "becomes"), [("off", "on"), ("local", "local"), ("on", "on"), ("remote_apply",) * 2])
def test_only_a_decision_is_synced_that_would_not_be(shop: Shop, was: str, becomes: str) -> None:
    """Who asks for less of a standby, or more, has it so; and the next transaction has what was set."""
    with psycopg.connect(shop.dsn) as connection:
        connection.execute(f"SET synchronous_commit = {was}".encode())
        connection.commit()
        make_durable(connection)
        assert connection.execute("SHOW synchronous_commit").fetchone() == (becomes,)
        connection.commit()
        assert connection.execute("SHOW synchronous_commit").fetchone() == (was,)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_run_that_waits_for_a_commit_meets_it_at_any_isolation(shop: Shop, level: str) -> None:
    """It inserts an abort while the transaction is open, and finds that there is a commit then: that is no failure."""
    reports: list[Report] = []
    run = threading.Thread(target=lambda: reports.append(shop.recover()))

    def waits() -> bool:
        with psycopg.connect(shop.dsn) as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%decisions%'"
            return connection.execute(query).fetchone() == (1,)

    def start() -> None:
        run.start()
        wait_until(waits, 20, "the run waits for the transaction", every=0.02)

    with setting(shop.dsn, "default_transaction_isolation", level):
        shop.at["decision written"] = start
        shop.place("a")
        run.join(60)
    assert len(reports) == 1 and [row.decision for row in reports[0].rows] == ["commit"]
    assert shop.look() == (1, 1)


def test_what_the_server_answers_is_no_unknown_decision(shop: Shop) -> None:
    """Nothing was inserted: that is refused, and known."""
    decisions = TableDecisions(shop.dsn)
    with setting(shop.dsn, "default_transaction_read_only", "on"), pytest.raises(DecisionRefused, match="read-only"):
        decisions.decide("name", False)


def test_an_answer_to_an_abort_that_is_lost_is_unknown(shop: Shop, postgresql: PostgreSQL) -> None:
    """The abort may be there; the next caller that asks is told which decision stands."""
    with DatabaseDoor(postgresql.port) as door:
        there = TableDecisions(shop.dsn.replace(f"port={postgresql.port}", f"port={door.port}"))
        door.lose_answer = b"INSERT"
        with pytest.raises(DecisionUnknown):
            there.decide("lost", False)
        assert door.lost == 1
        assert there.decide("lost", False) is False


def test_decisions_leave_no_settings_to_whoever_has_the_connection_next(shop: Shop) -> None:
    """A pooler gives it to others."""
    decisions = TableDecisions(shop.dsn)
    with decisions._connect() as connection:
        assert table._ask(connection, b"SHOW lock_timeout").fetchone() == ("5s",)
        query = "SELECT name FROM pg_settings WHERE source = 'session' AND name ~ '^(lock_timeout|sync|default_)'"
        assert connection.execute(query).fetchall() == []


def test_serializable_transactions_do_not_stand_in_each_other_s_way(shop: Shop) -> None:
    """Two at a time whose work has nothing in common, each behind another one whose row it would take away."""
    other, together = orm.transactional(shop.urls, lambda step: None), threading.Barrier(2)
    told: list[BaseException] = []

    def work(broker: TransactionalBroker, name: str) -> None:
        def reached(step: str) -> None:
            if step == "decision written":
                together.wait(60)

        broker.reached = reached
        try:
            for turn in range(3):
                with transaction.manager:
                    orm.place(broker, shop.sessions(), shop.queue.own, f"{name} {turn}")
        except BaseException as error:
            told.append(error)
            together.abort()

    with psycopg.connect(shop.dsn) as connection:  # PostgreSQL knows then that it is read whole at less cost
        connection.execute("INSERT INTO txha_decisions VALUES ('another', true, 'resource', 'branch')")
        connection.execute("ANALYZE txha_decisions")
        connection.execute("DELETE FROM txha_decisions")
    with setting(shop.dsn, "default_transaction_isolation", "serializable"):
        threads = [threading.Thread(target=work, args=each) for each in ((shop.broker, "a"), (other, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    other.broker.close()
    assert told == []
    assert shop.look() == (6, 6)
