"""A node that is told to end while its disk hangs ends all the same, and loses nothing that was acknowledged."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pika
import pytest

from python_tests.harness.pika_clients import PERSISTENT, parameters
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.network import Proxied
from python_tests.harness.stress.syncs import Disks, Kind
from python_tests.harness.waiting import wait_until
from tests.support.cases import some_of

pytestmark = pytest.mark.slice

SECONDS = 60.0
HOURS = 36_000.0


@pytest.mark.parametrize("hangs", some_of([Kind.LOG, Kind.STATE], suite=[Kind.LOG], slices=[Kind.STATE]))
def test_node_told_to_end_while_its_disk_hangs(tmp_path: Path, hangs: Kind) -> None:
    disks = Disks(tmp_path / "disks")
    options = ["store.checkpoint_seconds=0.2"]
    with StressCluster(tmp_path / "cluster", 1, Proxied(1), options, disks=disks) as cluster:
        (node,) = cluster.names
        cluster.kill(node)
        cluster.start_node(node)
        cluster.wait_state(node, "active")
        connection = pika.BlockingConnection(parameters(cluster.url(node)))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"acknowledged", PERSISTENT)
        disks.slow(node, HOURS, [hangs])
        before = disks.count(node, [hangs]).seen
        connection.channel().basic_publish("", "q", b"not acknowledged", PERSISTENT)
        wait_until(lambda: disks.count(node, [hangs]).seen > before, SECONDS, "a sync that hangs")
        said = cluster.said(node)
        os.kill(cluster.pid(node), signal.SIGTERM)
        wait_until(lambda: cluster.processes.exit_status(node) is not None, SECONDS, "the end of the node")
        assert cluster.processes.exit_status(node) == 1
        assert "has not finished what it was to write within 10 s" in cluster.said_since(node, said)
        disks.heal(node)
        cluster.start_node(node)
        cluster.wait_state(node, "active")
        with pika.BlockingConnection(parameters(cluster.url(node))) as connection:
            assert connection.channel().basic_get("q", auto_ack=True)[2] == b"acknowledged"


@pytest.mark.parametrize("hangs", some_of(Kind, suite=[Kind.STATE], slices=[Kind.OTHER]))
def test_node_told_to_end_while_its_disk_hangs_at_the_start(tmp_path: Path, hangs: Kind) -> None:
    """``told_to_end_while_the_store_is_opened``: it writes the log's end once more, and heard nothing meanwhile."""
    disks = Disks(tmp_path / "disks")
    with StressCluster(tmp_path / "cluster", 1, Proxied(1), disks=disks) as cluster:
        (node,) = cluster.names
        cluster.kill(node)
        disks.slow(node, HOURS, [hangs])
        before = disks.count(node, [hangs]).seen
        said = cluster.said(node)
        cluster.start_node(node)
        wait_until(lambda: disks.count(node, [hangs]).seen > before, SECONDS, "a sync that hangs")
        os.kill(cluster.pid(node), signal.SIGTERM)
        wait_until(lambda: cluster.processes.exit_status(node) is not None, SECONDS, "the end of the node")
        assert cluster.processes.exit_status(node) == 1
        assert "could not be opened within 10 s" in cluster.said_since(node, said)
        disks.heal(node)
        cluster.start_node(node)
        cluster.wait_state(node, "active")
