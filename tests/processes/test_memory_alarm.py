"""A node that is short of memory or of disk blocks who publishes, and is as small as before when that is over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.benchmarks.load import CONFIRM, Shape, batch_bytes
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.amqp.raw_client import RawClient

MIB = 1 << 20
MARKS = ("--set", "memory.high_bytes=33554432", "--set", "memory.hard_bytes=134217728")


@contextmanager
def channel_to(cluster: LocalCluster, node: int = 0) -> Iterator[BlockingChannel]:
    port = cluster.ports[node]
    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, blocked_connection_timeout=60)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


def told(channel: BlockingChannel) -> list[str]:
    """What the connection is told of alarms from now on."""
    said: list[str] = []
    channel.connection.add_on_connection_blocked_callback(lambda _, frame: said.append(frame.method.reason))
    channel.connection.add_on_connection_unblocked_callback(lambda _, frame: said.append("unblocked"))
    return said


def until(channel: BlockingChannel, condition: Callable[[], bool], what: str) -> None:
    def listen() -> bool:
        channel.connection.process_data_events(0.05)
        return condition()

    wait_until(listen, 30, what)


def fill_up(publisher: BlockingChannel, watcher: BlockingChannel) -> list[str]:
    """Queue ``q`` of the node's memory, until that is short; returns what the publisher is told of alarms."""
    said = told(publisher)
    publisher.queue_declare("q")

    def stand(messages: int) -> bool:
        return bool(watcher.queue_declare("q", passive=True).method.message_count == messages)

    for number in range(1, 49):
        publisher.basic_publish("", "q", b"x" * MIB)
        until(publisher, lambda number=number: bool(said) or stand(number), "the message, or connection.blocked")
        if said:
            break
    return said


def status(cluster: LocalCluster) -> dict[str, Any]:
    return dict(cluster.status()[0])


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.every
def test_publishers_wait_while_memory_is_short_and_a_consumer_ends_that(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "c", 1, *MARKS) as cluster,
        channel_to(cluster) as publisher,
        channel_to(cluster) as watcher,
    ):
        said = fill_up(publisher, watcher)
        until(publisher, lambda: said == ["low on memory"], "connection.blocked")
        shown = status(cluster)
        assert shown["alarms"] == ["low on memory"] and shown["memory"]["queues"] > 24 * MIB
        with channel_to(cluster) as consumer:
            for method, _, _ in consumer.consume("q", inactivity_timeout=0.5, auto_ack=True):
                if method is None:
                    break
            consumer.cancel()
        until(publisher, lambda: said == ["low on memory", "unblocked"], "connection.unblocked")
        publisher.confirm_delivery()
        publisher.basic_publish("", "q", b"and on")
        assert not status(cluster)["alarms"]


@pytest.mark.every
def test_a_disk_that_is_nearly_full_blocks_publishers_and_consumers_go_on(tmp_path: Path) -> None:
    """The store would end the node when nothing is left. Here the disk is full enough from the second start on."""
    with LocalCluster(tmp_path / "c", 1) as cluster, channel_to(cluster) as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "q", b"m")
    with LocalCluster(tmp_path / "c", 1, "--set", f"store.disk_free_bytes={1 << 60}") as cluster:
        wait_until(lambda: status(cluster)["alarms"] == ["low on disk"], 10, "the alarm of the disk")
        publisher = RawClient(cluster.ports[0])
        blocked = publisher.next()
        assert blocked is not None and blocked[1].reason == "low on disk"
        publisher.send(1, commands.Channel.Open())
        publisher.next()
        publisher.send_bytes(batch_bytes(Shape(CONFIRM, 1, 10, ("q",))))
        publisher.send(1, commands.Queue.Declare(queue="never"))
        with channel_to(cluster) as consumer:
            for _ in range(3):
                method, _, _ = consumer.basic_get("q")
                assert method is not None
                consumer.basic_ack(method.delivery_tag)
            assert consumer.queue_declare("q", passive=True).method.message_count <= 1
        publisher.close()
        command = [sys.executable, "-m", "broker_plugin.cli.main", "status", "--dir", str(tmp_path / "c")]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "publishers are blocked: low on disk" in shown and "free on disk" in shown
        assert "one has at most 256 MiB and 1048576 events" in shown
        assert (tmp_path / "c" / "node-1" / "node.log").read_text().count("store.disk_free_bytes") == 1


@pytest.mark.slice
def test_a_node_is_as_small_as_before_a_minute_after_a_large_transaction(tmp_path: Path) -> None:
    """200 MiB that were open in a transaction, and are rolled back, stayed in the process for ever."""
    with LocalCluster(tmp_path / "c", 1) as cluster, channel_to(cluster) as channel:
        (node,) = json.loads((tmp_path / "c" / "cluster.json").read_text())["nodes"]
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        before = resident(node["pid"])
        for _ in range(200 * MIB // 10_000):
            channel.basic_publish("", "q", b"x" * 10_000)
        channel.queue_declare("q", passive=True)
        assert resident(node["pid"]) - before > 180 * MIB
        assert status(cluster)["open_work"]["bytes"] > 199 * MIB
        channel.tx_rollback()
        assert status(cluster)["open_work"]["bytes"] == 0
        wait_until(lambda: resident(node["pid"]) - before < 100 * MIB, 60, "a node that is as small as before")
