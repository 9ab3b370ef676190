"""No number of a transaction is not the same as nothing done: what a branch of PostgreSQL's may do without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from python_tests.harness.servers.postgresql import PostgreSQL
from recovery.coordinator.names import branch_xid, new_global_name
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import BranchRolledBack
from txobserver.xid import Xid

FOREIGN = """
    CREATE EXTENSION IF NOT EXISTS postgres_fdw;
    DROP SERVER IF EXISTS other CASCADE;
    CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '{port}', dbname 'postgres');
    CREATE USER MAPPING FOR owner SERVER other OPTIONS (user 'owner');
    CREATE FOREIGN TABLE ledger (n int) SERVER other;
"""
SERIALIZABLE = "-c default_transaction_isolation=serializable"


def new_xid() -> Xid:
    return branch_xid(str(new_global_name("test")), "database")


@pytest.fixture
def opened(postgresql: PostgreSQL) -> Iterator[Callable[..., Postgresql]]:
    """Opens resources with psycopg's options, and closes them in the end."""
    found: list[Postgresql] = []

    def opened(**options: object) -> Postgresql:
        found.append(Postgresql(postgresql.dsn, **options))
        return found[-1]

    yield opened
    for each in found:
        each.close()


def make_foreign_ledger(postgresql: PostgreSQL) -> None:
    """A table that is in another database of the server."""
    with psycopg.connect(postgresql.dsn.replace("dbname=bank", "dbname=postgres")) as there:
        there.execute("DROP TABLE IF EXISTS ledger")
        there.execute("CREATE TABLE ledger (n int)")
    with psycopg.connect(postgresql.dsn) as here:
        here.execute(FOREIGN.format(port=postgresql.port).encode())


def refused(worker: Postgresql, statement: bytes, why: str) -> None:
    """Work that cannot be prepared is rolled back; the coordinator is told, and can go on."""
    xid = new_xid()
    worker.begin(xid)
    worker.connection.execute(statement)
    with pytest.raises(BranchRolledBack, match=why):
        worker.prepare(xid)
    worker.abandon(xid)
    assert xid not in worker.in_doubt()


def test_no_xid_is_not_nothing_written_to_a_foreign_table(
    postgresql: PostgreSQL, opened: Callable[..., Postgresql]
) -> None:
    """PostgreSQL cannot prepare it. To leave it out would lose the row, and publish the message."""
    make_foreign_ledger(postgresql)
    worker, xid = opened(), new_xid()
    refused(worker, b"INSERT INTO ledger VALUES (1)", "foreign")
    worker.begin(xid)
    worker.connection.execute("INSERT INTO ledger VALUES (2)")
    worker.commit_in_one_phase(xid)  # alone, it may
    with psycopg.connect(postgresql.dsn) as here:
        assert here.execute("SELECT n FROM ledger").fetchall() == [(2,)]


def test_no_xid_is_not_nothing_notified(opened: Callable[..., Postgresql]) -> None:
    refused(opened(), b"SELECT pg_notify('channel', 'hello')", "NOTIFY")


def test_no_xid_is_not_nothing_read(postgresql: PostgreSQL, opened: Callable[..., Postgresql]) -> None:
    """A report on a closed batch that a coordinator has made stays true: a late receipt into it is refused."""
    with psycopg.connect(postgresql.dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS control, receipts")
        connection.execute("CREATE TABLE control (batch int)")
        connection.execute("INSERT INTO control VALUES (1)")
        connection.execute("CREATE TABLE receipts (batch int, amount int)")
    worker, xid = opened(options=SERIALIZABLE), new_xid()
    with psycopg.connect(postgresql.dsn, options=SERIALIZABLE) as late:
        [(batch,)] = late.execute("SELECT batch FROM control").fetchall()
        with psycopg.connect(postgresql.dsn, options=SERIALIZABLE) as closing:
            closing.execute("UPDATE control SET batch = batch + 1")
        worker.begin(xid)
        worker.connection.execute("SELECT sum(amount) FROM receipts WHERE batch = (SELECT batch FROM control) - 1")
        assert worker.prepare(xid) is None, "nothing is left to be committed"
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.execute("INSERT INTO receipts VALUES (%s, 5)", [batch])
        late.rollback()
    assert xid not in worker.in_doubt()


def test_a_standby_is_read_in_a_branch() -> None:
    """Nothing can be prepared there, and nothing can have been written."""
    server, xid = PostgreSQL(), new_xid()
    try:
        server._create()
        (server.directory / "data" / "standby.signal").touch()
        server.start()
        worker = Postgresql(server.dsn.replace("dbname=bank", "dbname=postgres"))
        worker.begin(xid)
        assert worker.connection.execute("SELECT pg_is_in_recovery()").fetchall() == [(True,)]
        assert worker.prepare(xid) is None
        worker.begin(new_xid())
        worker.close()
    finally:
        server.__exit__(None, None, None)
