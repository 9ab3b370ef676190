"""The fake PostgreSQL of the coordinators' tester answers as the real one: programs by seed, on both, step by step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from python_tests.harness.servers.postgresql import PostgreSQL
from tests.coordinator_model.pg_client import FakeConnection, FakeCursor, Straight
from tests.coordinator_model.pg_heap import Table
from tests.coordinator_model.pg_programs import GIDS, SETUP, SETUP_OF_ROLES, Runner, Step, draw, draw_with_crashes
from tests.coordinator_model.pg_server import Server
from tests.support.cases import some_of

pytestmark = pytest.mark.slice

PROGRAMS = int(os.environ.get("TXHA_FAKE_PROGRAMS", "150"))
CRASHING = int(os.environ.get("TXHA_FAKE_CRASHES", "8"))
"""Programs in which the server crashes; the suite takes the first, and ``make every-case`` all."""
DSN = "host=fake user=owner dbname=bank"
CLEAN = """
    TRUNCATE work, checked, alice.work, txha_decisions, alice.txha_decisions, bob.txha_decisions;
    DROP TABLE IF EXISTS alice.checked, bob.work, bob.checked
"""


def fake() -> tuple[Any, Server]:
    """A new fake server with everything in place, and a function that connects to it."""
    server = Server(7_000_000_000_000_000_001)
    for name in ("bank", "other"):
        server.create_database(name)

    def connect(dsn: str, **options: Any) -> FakeConnection:
        database = conninfo_to_dict(dsn)["dbname"]
        return FakeConnection(server, str(database), dsn, options, Straight())

    with connect(DSN, autocommit=True) as connection:
        for statement in SETUP:
            connection.execute(statement)
    for role, statement in SETUP_OF_ROLES:
        with connect(DSN.replace("owner", role)) as connection:
            connection.execute(statement)
    remote = Table(1, "public", "ledger", "owner", ("n",))
    server.databases["other"].schemas["public"].tables["ledger"] = remote
    public = server.databases["bank"].schemas["public"]
    public.tables["ledger"] = Table(2, "public", "ledger", "owner", ("n",), foreign=remote)
    return connect, server


@pytest.fixture(scope="module")
def real() -> Iterator[PostgreSQL]:
    """A server of its own, with the same in place."""
    with PostgreSQL() as server:
        root = server.dsn.replace("dbname=bank", "dbname=postgres")
        with psycopg.connect(root, autocommit=True) as connection:
            connection.execute("CREATE DATABASE other")
        with psycopg.connect(server.dsn.replace("dbname=bank", "dbname=other"), autocommit=True) as connection:
            connection.execute("CREATE TABLE ledger (n text)")
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for statement in SETUP:
                connection.execute(statement.encode())
            connection.execute(f"""
                CREATE EXTENSION postgres_fdw; CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw
                OPTIONS (host '127.0.0.1', port '{server.port}', dbname 'other');
                CREATE USER MAPPING FOR owner SERVER other OPTIONS (user 'owner');
                CREATE FOREIGN TABLE ledger (n text) SERVER other;
            """.encode())
        for role, statement in SETUP_OF_ROLES:
            with psycopg.connect(server.dsn.replace("user=owner", f"user={role}")) as connection:
                connection.execute(statement.encode())
        yield server


def clean(server: PostgreSQL) -> None:
    """As it was before a program."""
    for name in ("bank", "other"):
        with psycopg.connect(server.dsn.replace("dbname=bank", f"dbname={name}"), autocommit=True) as connection:
            for xid in connection.tpc_recover():
                if xid.database == name:
                    connection.tpc_rollback(xid)
            if name == "bank":
                connection.execute(CLEAN)
            else:
                connection.execute("TRUNCATE ledger; DROP TABLE IF EXISTS txha_decisions")


def differences(server: PostgreSQL, seed: int, steps: list[Step]) -> list[str]:
    """What the two say differently about a program."""
    try:
        wanted = Runner(psycopg.connect, server.dsn, server.crash).run(steps)
    finally:
        clean(server)
    connect, there = fake()
    with patch.object(psycopg, "ClientCursor", FakeCursor):
        told = Runner(connect, DSN, there.crash).run(steps)
    return [
        f"seed {seed}, step {number}: {step}\n  PostgreSQL: {one}\n  the fake:   {other}"
        for number, (step, one, other) in enumerate(zip(steps, wanted, told, strict=True))
        if one != other
    ]


@pytest.mark.parametrize("first", range(0, PROGRAMS, 50))
def test_the_fake_answers_as_postgresql(real: PostgreSQL, first: int) -> None:
    for seed in range(first, min(first + 50, PROGRAMS)):
        found = differences(real, seed, draw(seed))
        assert not found, found[0]


def test_a_late_constraint_looks_at_rows_in_their_order(real: PostgreSQL) -> None:
    """A committed one in front of one whose transaction is open: no session is waited for. And the open one alone
    is."""
    sessions = [Step(on, "connect", ("owner", "-c lock_timeout=300ms", False, "bank")) for on in (0, 1)]
    taken, opened, mine = (f"INSERT INTO checked VALUES ('{n}', 'taken')" for n in "012")
    prepare = f"PREPARE TRANSACTION '{GIDS[0][0]}'"
    for committed in ([Step(0, "execute", (taken,)), Step(0, "commit")], []):
        rest = [Step(0, "execute", (opened,)), Step(1, "execute", (mine,)), Step(1, "execute", (prepare,))]
        assert differences(real, 0, sessions + committed + rest) == []


@pytest.mark.parametrize("seed", some_of(range(CRASHING), suite=range(min(1, CRASHING))))
def test_the_fake_crashes_as_postgresql(real: PostgreSQL, seed: int) -> None:
    """What was committed and what was prepared is there again, and nothing else."""
    with psycopg.connect(real.dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")  # or a start reads again what all programs before have written
    found = differences(real, seed, draw_with_crashes(seed))
    assert not found, found[0]
