"""docs/examples/orders_to_queues.py: its source by itself, and the whole as a reader would run it."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import psycopg
import pytest

from python_tests.postgresql import PostgreSQL

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "orders_to_queues.py"
COUNTRIES = ("de", "fr")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def dsn(script: dict[str, Any]) -> Iterator[str]:
    """A database with the script's table."""
    with PostgreSQL() as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute(script["TABLE"])
        yield server.dsn


def insert(connection: psycopg.Connection, *numbers: int) -> None:
    for number in numbers:
        connection.execute("INSERT INTO orders (country, amount) VALUES (%s, %s)", [COUNTRIES[number % 2], number])


def read(reader: Any, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """The numbers of a batch's orders."""
    rows = [row for part in reader.partitions(start, end) for row in reader.read(part)]
    return sorted(json.loads(body)["id"] for _, _, body in rows)


def test_a_row_that_is_committed_behind_later_ones(script: dict[str, Any], dsn: str) -> None:
    reader = script["OrdersReader"](dsn)
    at, batches = reader.initialOffset(), []
    with psycopg.connect(dsn) as slow, psycopg.connect(dsn, autocommit=True) as quick:
        insert(quick, 1, 2)
        insert(slow, 3)
        insert(quick, 4)
        for step in (slow.commit, lambda: insert(quick, 5), lambda: None):
            end = reader.latestOffset(at, reader.getDefaultReadLimit())
            batches.append(read(reader, at, end))
            assert read(reader, at, end) == batches[-1], "read again, it is the same"
            at = end
            step()
    assert batches == [[1, 2], [3, 4], [5]]
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at


@pytest.mark.timeout(300)
def test_orders_from_postgresql_to_queues(urls: list[str], dsn: str, tmp_path: Path) -> None:
    with pika.BlockingConnection(pika.URLParameters(urls[0])) as connection:
        for country in COUNTRIES:
            connection.channel().queue_declare(f"orders.{country}", durable=True)
    with psycopg.connect(dsn) as database:
        insert(database, *range(1, 12))
    options = ["--dsn", dsn, "--broker", ",".join(urls), "--checkpoint", str(tmp_path / "checkpoint")]
    subprocess.run([sys.executable, str(SCRIPT), *options], check=True)
    with pika.BlockingConnection(pika.URLParameters(urls[0])) as connection:
        channel, found = connection.channel(), {}
        for country in COUNTRIES:
            queue = f"orders.{country}"
            bodies = iter(lambda queue=queue: channel.basic_get(queue, auto_ack=True)[2], None)
            found[country] = sorted(json.loads(body)["id"] for body in bodies)
            channel.queue_delete(queue)
    assert found == {"de": list(range(2, 12, 2)), "fr": list(range(1, 12, 2))}
