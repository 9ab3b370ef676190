"""Real nodes that check their invariants: a take-over under transactions breaks none of them."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until

CHECKED = "invariants are checked after each turn (TXHA_CHECK_INVARIANTS)"


def transactions(cluster: LocalCluster, count: int) -> None:
    """Each takes its own message from the queue again, but for the last."""
    with pika.BlockingConnection(pika.URLParameters(cluster.url(cluster.primary() or ""))) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for number in range(count):
            channel.basic_publish("", "q", b"%d" % number)
            channel.tx_commit()
            if number + 1 < count:
                method, _, _ = channel.basic_get("q")
                channel.basic_ack(method.delivery_tag)
                channel.tx_commit()


def test_nodes_that_check_their_invariants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXHA_CHECK_INVARIANTS", "1")
    with LocalCluster(tmp_path / "c", 3) as cluster:
        first = cluster.primary()
        assert first is not None
        transactions(cluster, 40)
        cluster.kill(first)
        wait_until(lambda: cluster.primary() not in (None, first), 60, "a take-over")
        transactions(cluster, 40)
        cluster.start_node(first)
        wait_until(cluster.all_ready, 60, "all nodes ready")
        assert [node["queues"]["q"]["messages"] for node in cluster.status()] == [2, 2, 2]
        for log in cluster.directory.glob("node-*/node.log"):
            assert CHECKED in log.read_text() and "InvariantBroken" not in log.read_text()
