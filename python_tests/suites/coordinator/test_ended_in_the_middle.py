"""A transaction that SQL has ended, and more statements behind it: those are another transaction, and not committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
import transaction
from sqlalchemy import text

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.resources import Table
from python_tests.suites.coordinator.shop import Shop
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.names import branch_xid, new_global_name
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import BranchRolledBack
from txobserver.xid import Xid

ENDS = (
    "COMMIT",
    "ROLLBACK",
    "COMMIT AND CHAIN",
    "ROLLBACK AND CHAIN",
    "PREPARE TRANSACTION 'somebody''s own'",
    "COMMIT; BEGIN",
)
ends = pytest.mark.parametrize("end", ENDS)
asks = pytest.mark.parametrize("ask", [Postgresql.prepare, Postgresql.commit_in_one_phase])
Ask = Callable[[Postgresql, Xid], object]


def new_xid() -> Xid:
    return branch_xid(str(new_global_name("test")), "database")


@pytest.fixture
def table(postgresql: PostgreSQL) -> Iterator[Table]:
    table = Table(postgresql.dsn)
    yield table
    table.close()
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            connection.execute(f"ROLLBACK PREPARED '{gid.replace(chr(39), chr(39) * 2)}'")


@asks
@ends
def test_statements_behind_an_end_by_sql_are_not_committed(table: Table, end: str, ask: Ask) -> None:
    """Their COMMIT would be told as that of everything, of which one half was rolled back, or committed alone."""
    worker, xid = Postgresql(table.dsn), new_xid()
    worker.begin(xid)
    worker.connection.execute(f"INSERT INTO {table.own} VALUES ('before')".encode())
    worker.connection.execute(end.encode())
    worker.connection.execute(f"INSERT INTO {table.own} VALUES ('behind')".encode())
    with pytest.raises(BranchRolledBack, match="ended in the middle"):
        ask(worker, xid)
    worker.abandon(xid)
    assert len(table.look()) == (1 if end.startswith("COMMIT") else 0)
    other = new_xid()  # on the same connection
    worker.begin(other)
    table.work(worker)
    worker.commit_in_one_phase(other)
    worker.close()


@asks
def test_savepoints_and_settings_are_not_the_end(table: Table, ask: Ask) -> None:
    """Nor is the mark in the way of a first statement that chooses the isolation level."""
    worker, xid = Postgresql(table.dsn), new_xid()
    worker.begin(xid)
    worker.connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    worker.connection.execute("SAVEPOINT a")
    worker.connection.execute("SET LOCAL lock_timeout = '1s'")
    table.work(worker)
    worker.connection.execute("ROLLBACK TO SAVEPOINT a")
    with worker.connection.transaction():
        table.work(worker)
    assert worker.connection.execute("SHOW transaction_isolation").fetchall() == [("serializable",)]
    ask(worker, xid)
    worker.abandon(xid) if ask is Postgresql.prepare else None
    assert len(table.look()) == (0 if ask is Postgresql.prepare else 1)
    worker.close()


def test_a_commit_that_fails_says_why(postgresql: PostgreSQL, table: Table) -> None:
    """A deferred trigger that divides by zero is not taken for an end by SQL."""
    with psycopg.connect(postgresql.dsn) as connection:
        connection.execute(
            f"""
            CREATE OR REPLACE FUNCTION divide() RETURNS trigger LANGUAGE plpgsql
                AS $$ BEGIN PERFORM 1 / (SELECT count(*) * 0 FROM {table.own}); RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER divides AFTER INSERT ON {table.own} DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION divide()
        """.encode()
        )
    worker, xid = Postgresql(table.dsn), new_xid()
    worker.begin(xid)
    table.work(worker)
    with pytest.raises(BranchRolledBack, match="division by zero"):
        worker.commit_in_one_phase(xid)
    worker.abandon(xid)
    assert table.look() == []
    worker.close()


@ends
@pytest.mark.parametrize("published", [True, False])
def test_no_decision_behind_an_end_by_sql(shop: Shop, end: str, published: bool) -> None:
    """The row of the decision would be committed with what follows, and the message published beside a half."""
    if end.startswith("PREPARE"):
        end = "ROLLBACK"
    with pytest.raises(TransactionRolledBack, match="ended in the middle"), transaction.manager:
        session = shop.sessions()
        channel = shop.broker.join(session)
        session.add(orm.Order(number="a", customer="a"))
        session.flush()
        if published:
            channel.basic_publish("", shop.queue.own, b"a")
        connection = session.connection().connection.driver_connection
        assert isinstance(connection, psycopg.Connection)
        connection.execute(end.encode())
        session.execute(text("INSERT INTO orm_orders VALUES ('b', 'b')"))
    assert shop.look() == (1 if end.startswith("COMMIT") else 0, 0)
    assert shop.recover().settled
    assert shop.queue.open().in_doubt() == []
    shop.place("c")


def test_a_session_s_savepoint_is_not_the_end(shop: Shop) -> None:
    """Also one in which the broker has joined."""
    with transaction.manager:
        session = shop.sessions()
        session.connection()
        nested = session.begin_nested()
        shop.broker.join(session)
        nested.rollback()
        orm.place(shop.broker, session, shop.queue.own, "a")
    assert shop.look() == (1, 1)
