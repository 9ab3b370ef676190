"""docs/examples/orders_to_queues.py: its source by itself, and the whole in the session that runs here."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from tests.recovery.pipeline.queues.conftest import drained
from tests.support.servers import running_postgresql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slice

SCRIPT = Path(__file__).parents[4] / "docs" / "examples" / "orders_to_queues.py"
COUNTRIES = ("de", "fr")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def dsn(script: dict[str, Any]) -> Iterator[str]:
    """A database with the script's table."""
    with running_postgresql() as server:
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
def test_orders_from_postgresql_to_queues(
    spark: SparkSession,
    cluster: LocalCluster,
    channel: BlockingChannel,
    dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run twice: the second time there is one order more."""
    for country in COUNTRIES:
        channel.queue_declare(f"orders.{country}", durable=True)
    options = ["--dsn", dsn, "--broker", ",".join(cluster.urls), "--checkpoint", str(tmp_path / "checkpoint")]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    for numbers in (range(1, 11), range(11, 12)):
        with psycopg.connect(dsn) as database:
            insert(database, *numbers)
        runpy.run_path(str(SCRIPT), run_name="__main__")
    found = {each: sorted(json.loads(body)["id"] for body in drained(channel, f"orders.{each}")) for each in COUNTRIES}
    assert found == {"de": list(range(2, 12, 2)), "fr": list(range(1, 12, 2))}
