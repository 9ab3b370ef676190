"""Real processes and real clients: all nodes killed at once, processes that stop for a while, a resumed cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest
from pamqp.commands import Channel, Queue

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.failover import Clients
from python_tests.harness.load import Load
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.amqp.raw_client import RawClient, show

LOAD = Load(pika_workers=6, aio_connections=2, aio_channels=4, think=0.02)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("failover") / "cluster") as running:
        yield running


@pytest.fixture
def cluster(running: LocalCluster) -> LocalCluster:
    """The same for all tests: each of them leaves it well, or the next one says so."""
    wait_until(running.all_ready, 30, "all nodes ready")
    return running


def test_sigkill_of_all_nodes_at_once_loses_nothing(cluster: LocalCluster) -> None:
    clients = Clients(cluster.urls, LOAD)
    clients.start()
    clients.wait_committed(100)
    names = [node["name"] for node in cluster.status()]
    for name in names:
        cluster.kill(name)
    for name in names:
        cluster.start_node(name)
    clients.wait_committed(100, 40)
    verdict = clients.drain()
    assert not verdict.broken and verdict.committed >= 200


def test_a_stopped_primary_answers_nothing_when_it_wakes(cluster: LocalCluster) -> None:
    """SIGSTOP for longer than the lease: a survivor takes over, the sleeper steps down and follows."""
    clients = Clients(cluster.urls, LOAD)
    clients.start()
    clients.wait_committed(50)
    sleeper = cluster.primary()
    assert sleeper is not None
    with cluster.frozen(sleeper):
        wait_until(lambda: cluster.primary() not in (None, sleeper), 15, "another primary")
    wait_until(cluster.all_ready, 20, "all nodes ready")
    clients.wait_committed(50)
    assert not clients.drain().broken


def test_passed_on_to_a_stopped_primary(cluster: LocalCluster) -> None:
    """``passed_on_to_a_stopped_primary``: the backups end its clients' connections when the record names another."""
    sleeper = cluster.primary()
    assert sleeper is not None
    ports = [urlsplit(cluster.url(name)).port for name in cluster.backups()]
    clients = [RawClient(port) for port in ports if port is not None]
    for client in clients:
        client.send(1, Channel.Open())
        assert show(client.next()) == "1 Channel.OpenOk channel_id=''"
    with cluster.frozen(sleeper):
        for client in clients:
            client.send(1, Queue.Declare(queue="q", durable=True))
            assert client.next(60.0) is None, "the connection ends while its primary is stopped"
            client.close()
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ports[0])) as connection:
            connection.channel().queue_declare("q", durable=True)


def test_a_stopped_backup_holds_nobody_up_for_longer_than_prepare_timeout(cluster: LocalCluster) -> None:
    clients = Clients(cluster.urls, LOAD)
    clients.start()
    clients.wait_committed(50)
    sleeper = cluster.backups()[0]
    with cluster.frozen(sleeper):
        clients.wait_committed(100, 20)
        primary = next(node for node in cluster.status() if node["state"] == "active")
        assert sleeper not in primary["ready_set"]
    wait_until(cluster.all_ready, 20, "all nodes ready")
    assert not clients.drain().broken


@pytest.mark.every
def test_the_same_command_resumes_the_cluster_with_its_data(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    with cluster, pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.ports[1])) as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.tx_select()
        for number in range(20):
            channel.basic_publish("", "kept", f"{number}".encode())
        channel.tx_commit()
    began = time.monotonic()
    with cluster, pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.ports[0])) as connection:
        channel = connection.channel()
        assert channel.queue_declare("kept", passive=True).method.message_count == 20
        found = [channel.basic_get("kept", auto_ack=True)[2] for _ in range(20)]
        assert found == [f"{number}".encode() for number in range(20)]
        assert time.monotonic() > began


def test_promote_hands_over(cluster: LocalCluster) -> None:
    clients = Clients(cluster.urls, LOAD)
    clients.start()
    clients.wait_committed(50)
    chosen = cluster.backups()[0]
    cluster.promote(chosen)
    assert cluster.primary() == chosen, "it returns when that is so"
    wait_until(cluster.all_ready, 15, "all nodes ready")
    clients.wait_committed(50)
    assert not clients.drain().broken
