"""Logs of real nodes, read by others while they work: from the directories, and over the peer ports."""

from __future__ import annotations

import threading
import tomllib
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.pipeline.node import commit_point, node_table
from recovery.pipeline.source.options import parse_options
from recovery.pipeline.source.stream import StreamReader

SETTINGS = ("--set", "store.segment_bytes=65536", "--set", "store.checkpoint_seconds=0.2")


class Load(threading.Thread):
    """Transactions over two queues, until it is told to stop; a primary that dies is looked for again."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.enough = threading.Event()
        self.committed = 0

    def run(self) -> None:
        while not self.enough.is_set():
            for url in self.cluster.urls:
                try:
                    self._work(url)
                except (pika.exceptions.AMQPError, OSError):
                    continue

    def wait_for_more(self) -> None:
        """Some transactions more have been committed."""
        before = self.committed
        wait_until(lambda: self.committed > before + 20, 40, "more transactions")

    def _work(self, url: str) -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            for queue in ("a", "b"):
                channel.queue_declare(queue, durable=True)
            channel.tx_select()
            while not self.enough.is_set():
                for queue in ("a", "b"):
                    channel.basic_publish("", queue, f"{self.committed}".encode() * 50)
                channel.tx_commit()
                self.committed += 1


def addresses(cluster: LocalCluster) -> dict[str, str]:
    """Where the peer port of each node is."""
    found = {}
    for path in cluster.directory.glob("*/node.toml"):
        config = tomllib.loads(path.read_text())
        found[config["name"]] = f"{config['peer']['host']}:{config['peer']['port']}"
    return found


class Follower:
    """Reads a stream as Spark would, and keeps the rows of each node."""

    def __init__(self, **options: str) -> None:
        self.options = options
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.stream = StreamReader(parse_options(options))
        self.offset = self.stream.initialOffset()

    def follow(self) -> bool:
        """Take one batch; whether there was one."""
        end = self.stream.latestOffset(self.offset, ReadMaxRows(500))
        if end == self.offset:
            return False
        for part in self.stream.partitions(self.offset, end):
            for batch in self.stream.read(part):
                for row in batch.to_pylist():
                    self.rows.setdefault(row["node"], []).append(row)
        self.offset = end
        return True

    def restart(self) -> None:
        """As after a crash: another process with the offset of the last batch."""
        self.stream = StreamReader(parse_options(self.options))


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    with LocalCluster(tmp_path / "cluster", 3, *SETTINGS) as running:
        yield running


@pytest.mark.every
def test_what_readers_got_is_what_the_logs_say(cluster: LocalCluster, tmp_path: Path) -> None:
    """Under load, through the loss of the primary: each event once, and never one that was cut off again."""
    load = Load(cluster)
    load.start()
    try:
        load.wait_for_more()
        by_directory = Follower(path=str(cluster.directory))
        by_address = Follower(
            nodes=",".join(addresses(cluster).values()), secretFile=str(cluster.directory / "cluster.secret")
        )
        primary = cluster.primary()
        assert primary is not None
        for at in range(6):
            for follower in (by_directory, by_address):
                follower.follow()
                follower.restart()
            if at == 2:
                cluster.kill(primary)
                load.wait_for_more()
        cluster.start_node(primary)
        wait_until(cluster.all_ready, 40, "all nodes ready")
    finally:
        load.enough.set()
        load.join()
    directories = {name: cluster.directory / name for name in addresses(cluster)}
    wait_until(lambda: len({commit_point(each) for each in directories.values()}) == 1, 20, "the same commit point")
    end = commit_point(cluster.directory / primary)
    for follower in (by_directory, by_address):
        while follower.follow():
            pass
    logs = {name: node_table(each).to_pylist() for name, each in directories.items()}
    for name, log in logs.items():
        wanted = [row for row in log if row["position"] <= end]
        assert sum(row["kind"] == "decide" and row["commit"] for row in wanted) >= load.committed
        for follower in (by_directory, by_address):
            assert [row for row in follower.rows[name] if row["position"] <= end] == wanted
    assert len({str([{**row, "node": ""} for row in log if row["position"] <= end]) for log in logs.values()}) == 1
