"""The examples in docs/coordinators.md, each as it stands but for ports and places, and then the recovery runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from python_tests.harness.examples import examples_of, run_example
from python_tests.harness.servers.postgresql import PostgreSQL

PAGE = Path(__file__).parents[3] / "docs" / "coordinators.md"
TABLES = "DROP TABLE IF EXISTS accounts, txha_decisions"


@pytest.fixture
def changes(urls: list[str], postgresql: PostgreSQL, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where the page's places are here; the tables that it makes are removed, before and after."""
    ports = tuple(int(url.rstrip("/").rsplit(":", 1)[1]) for url in urls)
    address = tmp_path / "orders.url"
    address.write_text(f"{urls[0]}\n")
    address.chmod(0o600)
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute(TABLES)
        yield {
            "(5701, 5702, 5703)": repr(ports),
            "127.0.0.1:5701": f"127.0.0.1:{ports[0]}",
            "host=127.0.0.1 dbname=bank": postgresql.dsn,
            "/etc/orders.url": str(address),
            "/tmp/decisions.log": str(tmp_path / "decisions.log"),
        }
        connection.execute(TABLES)


def test_every_example_and_every_command_runs(changes: dict[str, str], postgresql: PostgreSQL) -> None:
    for text in examples_of(PAGE):
        there = {old: new for old, new in changes.items() if old in text}
        assert len(there) >= 2
        assert run_example(text, there) == "committed at both\n"
    with psycopg.connect(postgresql.dsn) as connection:
        assert connection.execute("SELECT balance FROM accounts").fetchall() == [(80,)]
    commands = re.findall(r"^\.venv/bin/txha (dtx recover .*)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        for old, new in changes.items():
            command = command.replace(old, new)
        ran = [sys.executable, "-m", "broker_plugin.cli.main", *shlex.split(command)]
        done = subprocess.run(ran, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
