"""`txha promote --accept-data-loss` with real processes: what is said, what stands in the record, who comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pika

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.pika_clients import parameters
from python_tests.harness.waiting import wait_until
from tests.processes.crashed import status_of, txha


def confirmed(cluster: LocalCluster, node: str, body: bytes) -> None:
    """One message in ``q``, acknowledged."""
    with pika.BlockingConnection(parameters(cluster.url(node))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", body)


def promoted(cluster: LocalCluster, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    return txha("promote", "--dir", cluster.directory, *words, node)


def test_the_loss_is_said_and_stands_in_the_record(tmp_path: Path) -> None:
    """Of two nodes one acknowledges alone and dies. The other is promoted, and overwrites it when it comes back."""
    with LocalCluster(tmp_path / "c", 2, "--set", "timing.lease_ttl=2") as cluster:
        alone, (other,) = cluster.primary() or "", cluster.backups()
        confirmed(cluster, alone, b"both")
        cluster.kill(other)
        wait_until(lambda: status_of(cluster, alone)["ready_set"] == [alone], 20, "one member alone")
        assert "ON ONE DISK" in status_of(cluster, alone)["shortage"]
        confirmed(cluster, alone, b"alone")
        cluster.kill(alone)
        cluster.start_node(other)
        cluster.wait_state(other, "joining")
        wait_until(lambda: status_of(cluster, other)["record_version"] > 0, 20, "a record that is known")
        assert promoted(cluster, other).returncode == 1, "only with consent"
        assert promoted(cluster, other, "--yes").returncode == 2, "a yes to nothing"
        answers = [promoted(cluster, other, "--accept-data-loss")]

        def taken() -> bool:
            if answers[-1].returncode:
                answers.append(promoted(cluster, other, "--accept-data-loss"))
            return answers[-1].returncode == 0

        wait_until(taken, 20, "the end of the lease")
        cluster.wait_state(other, "active")
        found = status_of(cluster, other)
        assert found["loss_accepted"] == found["generation"] == 2 and found["ready_set"] == [other]
        said = answers[-1].stderr
        assert f"{other} stands at " in said and "of the record, and stands in it" in said
        refused = promoted(cluster, other, "--accept-data-loss").stderr
        assert refused == "txha: this node is the primary already\n", "nothing is accepted before it is taken"
        cluster.start_node(alone)
        wait_until(cluster.all_ready, 30, "all nodes ready")
        assert [node["queues"]["q"]["messages"] for node in cluster.status()] == [1, 1]
        assert {node["loss_accepted"] for node in cluster.status()} == {2}
