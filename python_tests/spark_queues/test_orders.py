"""docs/examples/orders_to_queues.py, run as a reader would: killed in the middle, and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pika
import psycopg
import pytest

from python_tests.postgresql import PostgreSQL
from python_tests.spark_queues.crashes import kill_session
from python_tests.waiting import wait_until

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "orders_to_queues.py"
COUNTRIES = ("de", "fr")


@pytest.mark.timeout(300)
def test_orders_from_postgresql_to_queues(urls: list[str], tmp_path: Path) -> None:
    """A row whose transaction ends behind later ones is sent, too."""
    hold = tmp_path / "hold"
    hold.mkdir()
    (hold / "wanted").write_text("one committed\nnever")
    with PostgreSQL() as server:
        options = ["--dsn", server.dsn, "--broker", ",".join(urls), "--checkpoint", str(tmp_path / "checkpoint")]
        command = [sys.executable, str(SCRIPT), *options]
        connection = pika.BlockingConnection(pika.URLParameters(urls[0]))
        channel = connection.channel()
        for country in COUNTRIES:
            channel.queue_declare(f"orders.{country}", durable=True)
        with psycopg.connect(server.dsn) as slow, psycopg.connect(server.dsn, autocommit=True) as quick:
            quick.execute(table())
            insert(slow, 1)
            for number in range(2, 12):
                insert(quick, number)
            environment = {**os.environ, "TXHA_SPARK_HOLD": str(hold)}
            running = subprocess.Popen([*command, "--follow"], env=environment, start_new_session=True)
            try:
                slow.commit()
                wait_until((hold / "held").exists, 120, "a batch in the middle of its commit")
            finally:
                kill_session(running)
            insert(quick, 12)
        subprocess.run(command, check=True)
        found = {country: [] for country in COUNTRIES}
        for country, orders in found.items():
            while (got := channel.basic_get(f"orders.{country}", auto_ack=True))[0] is not None:
                orders.append(json.loads(got[2])["id"])
            channel.queue_delete(f"orders.{country}")
        connection.close()
    assert {country: sorted(orders) for country, orders in found.items()} == {
        "de": list(range(2, 13, 2)),
        "fr": list(range(1, 13, 2)),
    }


def table() -> str:
    """As the script makes it."""
    return SCRIPT.read_text().split('TABLE = """')[1].split('"""')[0]


def insert(connection: psycopg.Connection, number: int) -> None:
    connection.execute("INSERT INTO orders (country, amount) VALUES (%s, %s)", [COUNTRIES[number % 2], number])
