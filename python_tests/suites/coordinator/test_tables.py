"""Several applications in one database, each with decisions of its own."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from python_tests.harness.servers.postgresql import PostgreSQL
from recovery.coordinator.decisions import ABORT_KEPT, DecisionRefused
from recovery.coordinator.names import GlobalName, branch_xid, new_global_name
from recovery.coordinator.recover import recover
from recovery.coordinator.table import DecisionTable, TableDecisions, create_table, find_table, insert_commit
from recovery.planner.evidence import gather
from tests.recovery.coordinator.fakes import MemoryResource, World
from txobserver.outcomes import BranchOutcome

NAMES = ("alice", "bob%s")
"""Of the roles, each with a schema of the same name, as "$user" in the search path has it."""


class Application:
    """A role with a schema and decisions of its own."""

    def __init__(self, dsn: str, role: str) -> None:
        self.dsn = dsn.replace("user=owner", f"user={role}")
        with psycopg.connect(self.dsn) as connection:
            create_table(connection)
            self.table = find_table(connection)

    def prepare(self, broker: MemoryResource, whose: str = "") -> str:
        """A branch at the broker; the name of its transaction, which ``whose`` begins if it is not our own."""
        name = str(new_global_name(whose or self.table.whose))
        broker.begin(branch_xid(name, "broker"))
        broker.prepare(branch_xid(name, "broker"))
        return name

    def commit(self, broker: MemoryResource, name: str) -> None:
        """The decision, by the commit of the database."""
        with psycopg.connect(self.dsn) as connection:
            insert_commit(connection, self.table, name, broker.ticket(branch_xid(name, "broker")), [])


@pytest.fixture
def both(postgresql: PostgreSQL) -> Iterator[tuple[Application, Application]]:
    def drop(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        for role in NAMES:
            connection.execute(f'DROP SCHEMA IF EXISTS "{role}" CASCADE; DROP ROLE IF EXISTS "{role}"'.encode())

    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS txha_decisions")
        drop(connection)
        for role in NAMES:
            connection.execute(f'CREATE ROLE "{role}" LOGIN; CREATE SCHEMA "{role}" AUTHORIZATION "{role}"'.encode())
    alice, bob = (Application(postgresql.dsn, role) for role in NAMES)
    yield alice, bob
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        drop(connection)


@pytest.fixture
def broker() -> MemoryResource:
    return MemoryResource(World(), "broker:1", fences=True)


def test_two_applications_in_one_database(both: tuple[Application, Application], broker: MemoryResource) -> None:
    """One's database has committed; the other's recovery run comes first, and finds no decision."""
    alice, bob = both
    name = alice.prepare(broker)
    alice.commit(broker, name)
    undecided = alice.prepare(broker)
    for application in (bob, alice):
        mine = application is alice
        report = recover(TableDecisions(application.dsn), {"broker": broker}, 0.0)
        assert report.settled
        fates = {row.transaction: row.fate for row in report.rows}
        assert fates == ({name: BranchOutcome.COMMITTED, undecided: BranchOutcome.ROLLED_BACK} if mine else {})
    assert broker.ended[branch_xid(name, "broker")] is BranchOutcome.COMMITTED


def test_a_session_that_changes_its_search_path_decides_where_it_began(
    both: tuple[Application, Application], broker: MemoryResource
) -> None:
    """As where each tenant has a schema."""
    alice, _ = both
    name = alice.prepare(broker)
    elsewhere = "-c search_path=pg_catalog"
    with psycopg.connect(alice.dsn, options=elsewhere) as connection:
        insert_commit(connection, alice.table, name, broker.ticket(branch_xid(name, "broker")), [])
    decisions = TableDecisions(alice.dsn, alice.table.name, options=elsewhere)
    assert decisions.whose == alice.table.whose and decisions.decide(name, False) is True
    decisions.finish(name)
    assert TableDecisions(alice.dsn).unfinished() == {}


def test_a_name_without_a_table_is_decided_where_its_row_is(
    both: tuple[Application, Application], broker: MemoryResource
) -> None:
    """Earlier versions named the database alone. A row is believed; that there is none proves nothing here."""
    alice, bob = both
    assert alice.table.earlier == bob.table.earlier and not bob.table.alone
    name, undecided = (alice.prepare(broker, alice.table.earlier) for _ in range(2))
    alice.commit(broker, name)
    for application in (bob, alice):
        report = recover(TableDecisions(application.dsn), {"broker": broker}, 0.0)
        assert not report.settled
        assert all("an earlier version" in row.why for row in report.rows if row.fate is BranchOutcome.PREPARED)
    assert broker.ended == {branch_xid(name, "broker"): BranchOutcome.COMMITTED}
    assert broker.branches == {branch_xid(undecided, "broker"): BranchOutcome.PREPARED}


def test_a_name_without_a_table_hangs_on_the_only_one(postgresql: PostgreSQL, broker: MemoryResource) -> None:
    only = Application(postgresql.dsn, "owner")
    assert only.table.alone
    name, undecided = (only.prepare(broker, only.table.earlier) for _ in range(2))
    only.commit(broker, name)
    (facts,) = gather([], [("bank", only.dsn)], list(broker.branches)).databases
    assert (facts.whose, facts.earlier, facts.commits) == (only.table.whose, only.table.earlier, {name: True})
    assert recover(TableDecisions(only.dsn), {"broker": broker}, 0.0).settled
    assert broker.ended[branch_xid(name, "broker")] is BranchOutcome.COMMITTED
    assert broker.ended[branch_xid(undecided, "broker")] is BranchOutcome.ROLLED_BACK


def test_a_commit_is_kept_however_old_it_is(
    both: tuple[Application, Application], broker: MemoryResource
) -> None:
    """Until every participant has carried it out. An abort is removed after its time."""
    alice, _ = both
    name, aborted, late = (alice.prepare(broker) for _ in range(3))
    alice.commit(broker, name)
    decisions = TableDecisions(alice.dsn)
    decisions.decide(aborted, False)
    with psycopg.connect(alice.dsn) as connection:
        connection.execute("UPDATE txha_decisions SET at = now() - make_interval(secs => %s)", [ABORT_KEPT + 1])
    decisions.decide(late, False)
    assert set(decisions.unfinished()) == {name}
    assert decisions.decision(aborted) is None
    assert decisions.decision(late) is not None and decisions.decision(name) is not None


def test_a_second_table_is_made_while_a_run_is_under_way(postgresql: PostgreSQL, broker: MemoryResource) -> None:
    """What an earlier version began may be decided in that one from then on, so nothing is presumed in the first."""
    only = Application(postgresql.dsn, "owner")
    decisions = TableDecisions(only.dsn)
    undecided = only.prepare(broker, only.table.earlier)
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA late; CREATE TABLE late.txha_decisions (LIKE txha_decisions)")
        try:
            with pytest.raises(DecisionRefused, match="an earlier version"):
                decisions.decide(undecided, False)
        finally:
            connection.execute("DROP SCHEMA late CASCADE")
    assert decisions.decision(undecided) is None


def test_a_table_that_was_made_anew_is_another_one(both: tuple[Application, Application]) -> None:
    """What was decided in the old one is not known, so nothing of it is presumed."""
    alice, _ = both
    with psycopg.connect(alice.dsn) as connection:
        connection.execute("ALTER TABLE txha_decisions RENAME TO aside")
        create_table(connection)
        again = find_table(connection)
        assert again.whose != alice.table.whose and again.earlier == alice.table.earlier
        connection.execute("DROP TABLE txha_decisions")
        connection.execute("ALTER TABLE aside RENAME TO txha_decisions")
        assert find_table(connection).whose == alice.table.whose


@pytest.mark.parametrize("kind", ["TEMPORARY", "UNLOGGED"])
def test_a_table_that_forgets_is_refused(both: tuple[Application, Application], kind: str) -> None:
    """A temporary one would also hide the other one."""
    alice, _ = both
    with psycopg.connect(alice.dsn) as connection:
        if kind == "UNLOGGED":
            connection.execute("DROP TABLE txha_decisions")
        connection.execute(f"CREATE {kind} TABLE txha_decisions (name text)".encode())
        with pytest.raises(ValueError, match="may lose decisions"):
            find_table(connection)
        connection.rollback()


def test_who_has_no_table_is_told_what_to_do(both: tuple[Application, Application]) -> None:
    alice, _ = both
    with pytest.raises(DecisionRefused, match="create_table"):
        TableDecisions(alice.dsn, options="-c search_path=pg_catalog")


def test_a_name_fits_into_an_xid() -> None:
    """64 bytes of global id, with the greatest numbers that PostgreSQL gives."""
    table = DecisionTable("f" * 16 + "-" + "f" * 8 + "-" + "f" * 8, "", "", True)
    name = GlobalName(table.whose, (1 << 32) - 1, "f" * 16)
    assert len(branch_xid(str(name), "broker").gtrid) <= 64
