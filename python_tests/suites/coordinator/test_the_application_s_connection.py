"""The connection of a branch is the application's as well: what it makes of it changes nothing of what is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, scalar_row

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator.resources import Table
from recovery.coordinator.names import branch_xid, new_global_name
from recovery.coordinator.own_statements import COMMIT_MARKED, FUTURE, ask, ask_status
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import BranchRolledBack, Participant, ResourceLost
from recovery.coordinator.table import TableDecisions, create_table, find_table, insert_commit
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

KINDS: list[dict[str, Any]] = [
    {"row_factory": dict_row},
    {"row_factory": scalar_row},
    {"cursor_factory": psycopg.RawCursor},
    {"client_encoding": "SQL_ASCII"},
]
kinds = pytest.mark.parametrize("options", KINDS, ids=["dictionaries", "values", "raw", "bytes"])


def new_xid() -> Xid:
    return branch_xid(str(new_global_name("test")), "database")


@pytest.fixture
def table(postgresql: PostgreSQL) -> Iterator[Table]:
    table = Table(postgresql.dsn)
    yield table
    table.close()


@kinds
def test_rows_of_another_kind_commit_nothing_before_the_decision(table: Table, options: dict[str, Any]) -> None:
    """A dictionary of what was asked, taken for its values, says that this is a standby, where a branch just ends."""
    worker, xid = Postgresql(table.dsn, **options), new_xid()
    worker.begin(xid)
    table.work(worker)
    participant = worker.prepare(xid)
    assert participant is not None and participant.ticket.isdigit()
    assert table.look() == [], "it is prepared, and not committed"
    assert participant.resource == worker.name == table.open().name
    looking = Postgresql(table.dsn, **options)
    assert xid in looking.in_doubt() and looking.fate(xid, participant.ticket) is BranchOutcome.PREPARED
    looking.close()
    assert worker.settle(xid, False, participant.ticket) is BranchOutcome.ROLLED_BACK
    assert worker.fate(xid, participant.ticket) is BranchOutcome.ROLLED_BACK
    assert table.look() == []
    worker.close()


@kinds
def test_a_decision_is_inserted_by_a_connection_of_any_kind(table: Table, options: dict[str, Any]) -> None:
    with psycopg.connect(table.dsn) as connection:
        create_table(connection)
        wanted = find_table(connection)
    with psycopg.connect(table.dsn, **options) as connection:
        found = find_table(connection)
        assert found == wanted
        assert insert_commit(connection, found, "name", Participant("resource", "branch"), ["other"]).number.isdigit()
        connection.rollback()


def test_decisions_of_a_database_without_an_encoding(table: Table) -> None:
    """Its text is bytes for psycopg; a commit that is not found under its name would be taken for an abort."""
    with psycopg.connect(table.dsn) as connection:
        create_table(connection)
        name = str(new_global_name(find_table(connection).whose))
        insert_commit(connection, find_table(connection), name, Participant("resource", "branch"), [])
    decisions = TableDecisions(table.dsn, client_encoding="SQL_ASCII")
    assert decisions.whose == TableDecisions(table.dsn).whose
    found = decisions.decision(name)
    assert found is not None and found.commit and found.participants == (Participant("resource", "branch"),)
    assert name in decisions.unfinished()
    assert decisions.decide(name, False), "the commit stands"
    decisions.finish(name)
    assert decisions.decision(name) is None


def test_a_session_without_a_mark_commits_nothing(table: Table) -> None:
    """As the next one that a pooler gives, where the setting has never been: what is not known is no mark, either."""
    with psycopg.connect(table.dsn) as connection:
        connection.execute(f"INSERT INTO {table.own} VALUES ('word')".encode())
        with pytest.raises(errors.DivisionByZero):
            ask(connection, COMMIT_MARKED, "a transaction")
        assert connection.info.transaction_status == TransactionStatus.INERROR
        connection.rollback()
    assert table.look() == []


def test_a_number_that_was_not_given_is_in_the_future(table: Table) -> None:
    """Not one that is forgotten: this server has lost the transaction. No question leaves a transaction open."""
    worker = table.open()
    assert isinstance(worker, Postgresql)
    for ticket, found in (("123456789012", FUTURE), ("3", None)):
        assert ask_status(worker.connection, ticket) == found
        assert worker.connection.info.transaction_status == TransactionStatus.IDLE
    assert worker.fate(new_xid(), "123456789012") is BranchOutcome.UNKNOWN


def test_nothing_is_prepared_at_a_server_that_a_pooler_may_change(table: Table) -> None:
    """In its transaction mode the next server knows no statement that was prepared at the last one."""
    worker = Postgresql(table.dsn)
    for _ in range(10):
        xid = new_xid()
        worker.begin(xid)
        table.work(worker)
        participant = worker.prepare(xid)
        assert participant is not None
        assert worker.settle(xid, True, participant.ticket) is BranchOutcome.COMMITTED
    worker.begin(new_xid())
    query = "SELECT statement FROM pg_prepared_statements WHERE statement NOT LIKE 'INSERT%'"
    assert worker.connection.execute(query).fetchall() == []
    worker.close()


@pytest.mark.parametrize("ask", [Postgresql.prepare, Postgresql.commit_in_one_phase])
def test_a_transaction_that_a_statement_has_ended_is_not_committed(
    table: Table, ask: Callable[[Postgresql, Xid], object]
) -> None:
    """What would be prepared is another one, and empty; and the others would commit their parts."""
    worker, xid = Postgresql(table.dsn), new_xid()
    worker.begin(xid)
    table.work(worker)
    worker.connection.execute("ROLLBACK")
    with pytest.raises(BranchRolledBack, match="ended in the middle"):
        ask(worker, xid)
    worker.abandon(xid)
    assert table.look() == []
    worker.begin(new_xid())
    worker.close()


def test_work_behind_a_lost_connection_is_refused(table: Table) -> None:
    """On another connection it would be in no branch, and never committed."""
    worker, xid = Postgresql(table.dsn), new_xid()
    worker.begin(xid)
    [(process,)] = worker.connection.execute("SELECT pg_backend_pid()").fetchall()
    with psycopg.connect(table.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (process,))
    with pytest.raises(psycopg.OperationalError):
        table.work(worker)
    for _ in range(2):
        with pytest.raises(ResourceLost, match="begun is lost"):
            worker.connection_in(xid)
    with pytest.raises(BranchRolledBack):
        worker.prepare(xid)
    worker.begin(new_xid())
    table.work(worker)
    worker.close()


@pytest.mark.parametrize("ask", [Postgresql.prepare, Postgresql.commit_in_one_phase])
def test_a_pipeline_that_was_left_open_is_not_prepared(
    postgresql: PostgreSQL, ask: Callable[[Postgresql, Xid], object]
) -> None:
    """Nothing is answered in it: a PREPARE TRANSACTION that was only sent was told as one that had succeeded."""
    worker, xid = Postgresql(postgresql.dsn), new_xid()
    worker.begin(xid)
    left = worker.connection.pipeline()
    left.__enter__()
    worker.connection.execute("CREATE TABLE left_open (n int)")
    with pytest.raises(BranchRolledBack, match="leave its block"):
        ask(worker, xid)
    worker.abandon(xid)
    assert worker.fate(xid, "") is BranchOutcome.UNKNOWN and xid not in worker.in_doubt()
    again = worker.connection.pipeline()
    again.__enter__()
    other = new_xid()  # begun in one that was not left
    worker.begin(other)
    assert worker.connection.execute("SELECT to_regclass('left_open')").fetchall() == [(None,)]
    worker.commit_in_one_phase(other)
    worker.close()
