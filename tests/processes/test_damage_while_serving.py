"""``damage_found_while_serving`` with real processes: a node ends, a backup takes over, and damage stays refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until

COUNT = 40
SIZE = 400_000
BODIES = [b"body-%04d-" % number + b"x" * SIZE for number in range(COUNT)]
"""More than a queue keeps of its beginning in memory, so that the rest is read from the disk"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", 3, "--set", "store.checkpoint_seconds=0.5") as running:
        yield running


def filled(cluster: LocalCluster) -> tuple[str, Path]:
    """The primary, which has a queue full of messages, and the file that holds them all."""
    primary = cluster.primary()
    assert primary is not None
    channel = connected(cluster, primary).channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    for body in BODIES:
        channel.basic_publish("", "q", body)
    state = cluster.directory / primary / "state" / "data.mdb"
    wait_until(lambda: b"body-%04d-" % (COUNT - 1) in state.read_bytes(), 30, "the checkpoint")
    return primary, state


def connected(cluster: LocalCluster, node: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(cluster.url(node))
    parameters.heartbeat = 0
    return pika.BlockingConnection(parameters)


def consumed(cluster: LocalCluster, node: str, enough: int) -> list[bytes]:
    """What a consumer gets until it has enough, or its connection is closed."""
    found: list[bytes] = []
    connection = connected(cluster, node)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5)
    try:
        for method, _, body in channel.consume("q"):
            found.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(found) == enough:
                break
        channel.cancel()
        connection.close()
    except AMQPConnectionError:
        pass
    return found


def check_taken_over(cluster: LocalCluster, failed: str, before: list[bytes]) -> None:
    """Another node serves all that was not settled; what was on its way may come twice."""
    wait_until(lambda: cluster.primary() not in (None, failed), 30, "another primary")
    primary = cluster.primary()
    assert primary is not None
    found = consumed(cluster, primary, 1)
    while found[-1] != BODIES[-1]:
        found += consumed(cluster, primary, 1)
    assert sorted({*before, *found}) == BODIES


def check_refused(cluster: LocalCluster, node: str) -> None:
    """The node does not start, and says why in one line."""
    log = cluster.directory.parent / "refused.log"
    cluster.start_node(node, log=log)
    wait_until(lambda: cluster.processes.exit_status(node) is not None, 30, "the refusal")
    assert cluster.processes.exit_status(node) == 2
    assert "is damaged" in log.read_text().splitlines()[-1] and "rejoin with a new store" in log.read_text()


def test_a_flipped_bit(cluster: LocalCluster) -> None:
    primary, state = filled(cluster)
    at = state.read_bytes().find(BODIES[-2][:10])
    with state.open("r+b") as file:
        file.seek(at + 20)
        file.write(b"Y")
    before = consumed(cluster, primary, COUNT)
    assert len(before) < COUNT
    wait_until(lambda: not cluster.processes.runs(primary), 30, "the end of the damaged node")
    log = (cluster.directory / primary / "node.log").read_text().splitlines()
    assert "a checksum in the queue state does not match" in log[-1] and "Traceback" not in "".join(log)
    check_taken_over(cluster, primary, before)
    check_refused(cluster, primary)


@pytest.mark.every
def test_pages_that_are_gone_end_the_process(cluster: LocalCluster) -> None:
    """Behind the end of the file the memory map kills who looks: by a signal, before anything can be said."""
    primary, state = filled(cluster)
    os.truncate(state, 5 * 4096)
    before = consumed(cluster, primary, COUNT)
    assert len(before) < COUNT
    wait_until(lambda: not cluster.processes.runs(primary), 30, "the end of the damaged node")
    check_taken_over(cluster, primary, before)
    check_refused(cluster, primary)
