"""An application that works in the role of one of its customers: a role that may begin a branch can settle it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator.resources import Queue, Table
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinator import Coordinator
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.names import branch_xid, new_global_name
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import BranchRolledBack
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

ROLES = """
    DO $$ BEGIN CREATE ROLE customer; EXCEPTION WHEN duplicate_object THEN END $$;
    DO $$ BEGIN CREATE ROLE worker LOGIN; EXCEPTION WHEN duplicate_object THEN END $$;
    GRANT customer TO worker
"""


def new_xid() -> Xid:
    return branch_xid(str(new_global_name("test")), "database")


@pytest.fixture
def table(postgresql: PostgreSQL) -> Iterator[Table]:
    """Only the customer may write to it."""
    table = Table(postgresql.dsn)
    with psycopg.connect(postgresql.dsn) as connection:
        connection.execute(ROLES)
        connection.execute(f"GRANT INSERT ON {table.own} TO customer".encode())
    yield table
    table.close()


@pytest.fixture
def worker(table: Table) -> Iterator[Postgresql]:
    """No superuser, and no customer."""
    worker = Postgresql(table.dsn.replace("user=owner", "user=worker"))
    yield worker
    worker.close()


def work(worker: Postgresql, table: Table, how: str) -> Any:
    """A branch that was prepared in the customer's role, and its participant."""
    xid = new_xid()
    worker.begin(xid)
    worker.connection.execute(f"{how} customer".encode())
    table.work(worker)
    return xid, worker.prepare(xid)


@pytest.mark.parametrize("how", ["SET LOCAL ROLE", "SET ROLE"])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_a_branch_of_another_role_is_settled(
    worker: Postgresql, table: Table, how: str, commit: bool, own: bool
) -> None:
    """By its session, and, if that dies, by a recovery run of the role that began it; else it stays prepared."""
    xid, participant = work(worker, table, how)
    other = worker if own else Postgresql(table.dsn.replace("user=owner", "user=worker"))
    assert other.settle(xid, commit, participant.ticket) is (
        BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK
    )
    assert len(table.look()) == int(commit)
    other.close()


@pytest.mark.parametrize("how", ["SET LOCAL ROLE", "SET ROLE"])
def test_a_branch_of_another_role_is_abandoned(worker: Postgresql, table: Table, how: str) -> None:
    xid, _ = work(worker, table, how)
    worker.abandon(xid)
    assert worker.in_doubt() == [] and table.look() == []


def test_a_role_that_was_chosen_before_stays(worker: Postgresql, table: Table) -> None:
    """The session is not replaced by one that has lost it, and what is deferred is done in it."""
    worker.connection.execute("SET ROLE customer")
    worker.connection.commit()
    before = worker.connection
    xid = new_xid()
    worker.begin(xid)
    table.work(worker)
    participant = worker.prepare(xid)
    assert participant is not None
    assert worker.settle(xid, True, participant.ticket) is BranchOutcome.COMMITTED
    assert worker.connection is before and len(table.look()) == 1
    assert before.execute("SHOW role").fetchall() == [("customer",)]


def test_what_is_deferred_is_done_in_the_role_that_was_chosen(
    postgresql: PostgreSQL, worker: Postgresql, table: Table
) -> None:
    """The customer may not, so nothing is prepared, though the worker might."""
    with psycopg.connect(postgresql.dsn) as connection:
        connection.execute(
            f"""
            CREATE TABLE {table.own}_log (who text);
            GRANT INSERT ON {table.own}_log TO worker;
            CREATE FUNCTION {table.own}_noted() RETURNS trigger LANGUAGE plpgsql
                AS $$ BEGIN INSERT INTO {table.own}_log VALUES (current_user); RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER noted AFTER INSERT ON {table.own} DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION {table.own}_noted()
        """.encode()
        )
    with pytest.raises(BranchRolledBack, match="permission denied for table"):
        work(worker, table, "SET LOCAL ROLE")


def test_a_customer_s_row_is_there_when_the_message_is(
    worker: Postgresql, table: Table, urls: list[str], tmp_path: Path
) -> None:
    queue = Queue(urls)
    broker = queue.open()
    assert isinstance(broker, Broker)
    coordinator = Coordinator(DecisionLog(tmp_path / "log"), broker, worker)
    with coordinator.transaction() as t:
        t.database.execute("SET LOCAL ROLE customer")
        t.database.execute(f"INSERT INTO {table.own} VALUES ('word')".encode())
        t.broker.basic_publish("", queue.own, b"word")
    assert (len(table.look()), len(queue.look())) == (1, 1)
    assert coordinator.recover(0.0).settled
    queue.close()
