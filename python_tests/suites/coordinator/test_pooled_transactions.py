"""A pooler that gives a connection of its to another client behind each transaction, as pgbouncer does."""

from __future__ import annotations

import uuid

import psycopg

from python_tests.harness.servers.pgbouncer import PgBouncer
from python_tests.harness.servers.postgresql import PostgreSQL
from recovery.coordinator.names import branch_xid
from recovery.coordinator.postgresql import Postgresql

ENOUGH = 6
"""Transactions: psycopg has a statement prepared by the server when it is executed for the sixth time."""


def transact(clients: list[Postgresql], statements: tuple[str, ...]) -> None:
    """One transaction of each at once; they end in the order in which they began, so the connections are swapped."""
    xids = [branch_xid(f"pooled.0.{uuid.uuid4().hex}", "database") for _ in clients]
    for client, xid in zip(clients, xids, strict=True):
        client.begin(xid)
    for client, statement in zip(clients, statements, strict=True):
        client.connection.execute(statement.encode(), [1])
    for client, xid in zip(clients, xids, strict=True):
        participant = client.prepare(xid)
        assert participant is not None
        client.settle(xid, True, participant.ticket)


def test_a_pooler_gives_nobody_another_client_s_statement(postgresql: PostgreSQL) -> None:
    """What one client has prepared under a name would be executed for another one that has given the same name."""
    table = f"pooled_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgresql.dsn) as connection:
        connection.execute(f"CREATE TABLE {table} AS SELECT 100 AS poor, 100 AS rich".encode())
        connection.execute(f"CREATE TABLE {table}_other AS SELECT 100 AS poor, 100 AS rich".encode())
    statements = (f"UPDATE {table} SET poor = poor - %s", f"UPDATE {table}_other SET rich = rich + %s")
    with PgBouncer({"app": postgresql.dsn}, ["owner"]) as pooler:
        clients = [Postgresql(pooler.dsn("app", "owner")) for _ in statements]
        for _ in range(ENOUGH):
            transact(clients, statements)
        transact(clients[:1], statements[:1])  # on the connection that the other one had last
        for client in clients:
            client.close()
    with psycopg.connect(postgresql.dsn) as connection:
        found = connection.execute(f"SELECT * FROM {table} UNION ALL SELECT * FROM {table}_other".encode()).fetchall()
    assert sorted(found) == [(100 - ENOUGH - 1, 100), (100, 100 + ENOUGH)]


def test_who_wants_prepared_statements_asks_for_them(postgresql: PostgreSQL) -> None:
    for options, threshold in (({}, None), ({"prepare_threshold": 3}, 3)):
        client = Postgresql(postgresql.dsn, **options)
        assert client.connection.prepare_threshold == threshold
        client.close()
