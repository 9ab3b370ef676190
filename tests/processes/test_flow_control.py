"""Who is faster than another waits for it, and no node's memory fills meanwhile: real nodes, watched from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.memory import MemoryWatch
from python_tests.harness.waiting import wait_until
from tests.processes.flood import COMMITTED, ENDLESS, PLAIN, Flood, deaf_consumer, flooding
from txobserver.ids import MAX_TRANSACTION_BYTES

MIB = 1 << 20
BOUND = 500 * MIB
"""64 MiB of recent frames, 32 MiB of backlog as events and as bytes, two layers of changes, and what Python leaves.

Beside it every node holds what is in open transactions (``held``).
"""
SETTINGS = ("--set", "store.checkpoint_bytes=16777216", "--set", "timing.lease_ttl=5")
SIZE = 20_000
MODES = (PLAIN, COMMITTED, ENDLESS)


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A backup that stands still counts for as long as the parameter says, in seconds."""
    patience = getattr(request, "param", 3)
    times = [f"timing.{name}={patience}" for name in ("prepare_timeout", "link_deadline")]
    settings = [word for each in times for word in ("--set", each)]
    with LocalCluster(tmp_path / "cluster", 3, *SETTINGS, *settings) as running:
        yield running


def primary_port(cluster: LocalCluster) -> int:
    name = cluster.primary()
    assert name is not None
    return cluster.ports[int(name.removeprefix("node-")) - 1]


@contextmanager
def channel_with(port: int, *queues: str) -> Iterator[BlockingChannel]:
    """A channel, and these queues."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)) as connection:
        channel = connection.channel()
        for queue in queues:
            channel.queue_declare(queue, durable=True)
        yield channel


def waiting(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def watch(cluster: LocalCluster) -> MemoryWatch:
    return MemoryWatch([cluster.pid(node["name"]) for node in cluster.status()])


def ready_set(cluster: LocalCluster) -> list[str]:
    return next(list(node["ready_set"]) for node in cluster.status() if node["state"] == "active")


def publishers(port: int, each: int) -> list[Flood]:
    """So many of each kind; each kind has a queue of that name."""
    return [Flood(port, mode, mode, SIZE) for mode in MODES for _ in range(each)]


def held(floods: list[Flood]) -> int:
    """Bytes of the transactions that never end: each node holds them, up to the limit for one transaction."""
    return sum(min(flood.sent * SIZE, MAX_TRANSACTION_BYTES) for flood in floods if flood.queue == ENDLESS)


def all_there(channel: BlockingChannel, floods: list[Flood]) -> bool:
    """Whether every message that was sent, and committed, is in its queue once."""
    sent = [sum(f.sent for f in floods if f.queue == mode and mode != ENDLESS) for mode in MODES]
    return [waiting(channel, mode) for mode in MODES] == sent


@pytest.mark.parametrize("cluster", [60], indirect=True)
def test_publishers_wait_for_the_slowest_ready_backup(cluster: LocalCluster) -> None:
    """While a ready backup stands still, publishers in and outside transactions get stuck, soon and all of them."""
    port, sleeper = primary_port(cluster), cluster.backups()[0]
    with channel_with(port, *MODES) as channel, watch(cluster) as memory:
        floods = publishers(port, 2)
        with flooding(*floods) as progress:
            wait_until(progress.goes_on, 20, "publishers at work")
            with cluster.frozen(sleeper):
                wait_until(progress.stalled, 20, "publishers that wait")
                assert len(ready_set(cluster)) == 3, "the backup still counts"
            wait_until(progress.goes_on, 20, "publishers that go on")
        assert memory.growth < BOUND + held(floods)
        assert all_there(channel, floods)


def test_memory_is_bounded_while_publishers_outrun_a_slow_backup(cluster: LocalCluster) -> None:
    """A backup that stands still nine tenths of the time: what is pushed waits with the publishers."""
    port, slow = primary_port(cluster), cluster.backups()[0]
    with channel_with(port, *MODES) as channel, watch(cluster) as memory:
        floods = publishers(port, 3)
        with flooding(*floods), stuttering(cluster, slow):
            time.sleep(3)
            assert len(ready_set(cluster)) == 3, "the backup is slow, not silent"
        assert memory.growth < BOUND + held(floods)
        assert all_there(channel, floods)


@contextmanager
def stuttering(cluster: LocalCluster, name: str) -> Iterator[None]:
    """A node that is stopped for 90 ms of every 100."""
    ended = threading.Event()

    def stutter() -> None:
        while not ended.wait(0.01):
            with cluster.frozen(name):
                time.sleep(0.09)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.every
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_paused_backup_leaves_and_the_others_go_on_under_a_flood(cluster: LocalCluster) -> None:
    port, sleeper = primary_port(cluster), cluster.backups()[0]
    with channel_with(port, *MODES) as channel, watch(cluster) as memory:
        floods = publishers(port, 1)
        with flooding(*floods) as progress, cluster.frozen(sleeper):
            wait_until(progress.stalled, 20, "publishers that wait")
            wait_until(lambda: sleeper not in ready_set(cluster), 20, "the sleeper's leaving")
            wait_until(progress.goes_on, 20, "publishers that go on")
        assert memory.growth < BOUND + held(floods)
        assert all_there(channel, floods)
    wait_until(cluster.all_ready, 30, "all nodes ready")


@pytest.mark.every
def test_a_consumer_that_does_not_read_costs_only_itself(cluster: LocalCluster) -> None:
    """It is sent a few MiB, which wait for it; a neighbour on the same queue gets all the rest."""
    port = primary_port(cluster)
    with channel_with(port, "plain", "other") as channel, watch(cluster) as memory:
        deaf, flood = deaf_consumer(port, "plain"), Flood(port, "plain", PLAIN, SIZE)
        with flooding(flood) as progress:
            wait_until(lambda: flood.sent * SIZE > 128 * MIB, 30, "more than could be buffered for it")
            wait_until(progress.goes_on, 20, "a publisher that goes on")
        channel.confirm_delivery()
        channel.basic_publish("", "other", b"another queue is not held up")
        assert channel.basic_get("other", auto_ack=True)[2]
        left = waiting(channel, "plain")
        assert 0 < flood.sent - left < 64 * MIB // SIZE, "the deaf one has some, which it does not read"
        channel.basic_qos(prefetch_count=100)
        for number, (method, _, _) in enumerate(channel.consume("plain", inactivity_timeout=10)):
            assert method is not None, "what no client holds goes to the one that takes it"
            channel.basic_ack(method.delivery_tag)
            if number == 1000:
                break
        channel.cancel()
        deaf.close()
        wait_until(lambda: waiting(channel, "plain") == flood.sent - 1001, 10, "what the deaf one held in its queue")
    assert memory.growth < BOUND
