"""The coordination file is lost under real nodes: they end, no node founds anything, an operator writes a new one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from tests.processes.crashed import NODES, plan, txha
from tests.processes.test_accepted_loss import confirmed

PATIENT = ("--set", "timing.lease_ttl=2")


def refused(cluster: LocalCluster, node: str) -> str:
    """What a node says that refuses to run."""
    answer = txha("node", "--config", cluster.directory / node / "node.toml")
    assert answer.returncode == 2, answer.stderr
    return answer.stderr


@pytest.mark.every
def test_empty_node_founds_anew(tmp_path: Path) -> None:
    """The file is removed and a disk replaced. Its node starts first; the others hold what was acknowledged."""
    with LocalCluster(tmp_path / "c", 3, *PATIENT) as cluster:
        record, wiped = cluster.directory / "coordination.sqlite", cluster.backups()[0]
        confirmed(cluster, cluster.primary() or "", b"kept")
        cluster_id = cluster.status()[0]["cluster_id"]
        record.unlink()
        wait_until(lambda: not any(cluster.processes.runs(name) for name in NODES), 30, "the end of all nodes")
        for part in ("log", "state"):
            shutil.rmtree(cluster.directory / wiped / part)
        (cluster.directory / wiped / "identity.json").unlink()
        assert "txha init" in refused(cluster, wiped) and not (cluster.directory / wiped / "log").exists()
        for name in NODES:
            if name != wiped:
                assert "holds data: write a new record with `txha recover`" in refused(cluster, name)
        assert not record.exists()
    found = plan("--apply", cluster.directory, status=1)
    assert found["missing"] == [wiped] and "refused" in found and not record.exists()
    found = plan("--apply", cluster.directory, "--accept-missing", wiped, status=1)
    assert found["promote"] not in (None, wiped) and found["queues"]["q"]["messages"] == 1
    with LocalCluster(tmp_path / "c", 3, *PATIENT) as cluster:
        wait_until(cluster.all_ready, 30, "all nodes ready")
        for node in cluster.status():
            assert (node["cluster_id"], node["queues"]["q"]["messages"]) == (cluster_id, 1)


def test_damaged_record_is_told_by_status(tmp_path: Path) -> None:
    """Something else has written to its file: the nodes wait, and say for what."""
    with LocalCluster(tmp_path / "c", 1, *PATIENT) as cluster:
        assert cluster.status()[0]["record_error"] is None

        def complains() -> bool:
            """A renewal that is under way may write its pages over ours."""
            with (cluster.directory / "coordination.sqlite").open("r+b") as file:
                file.write(b"no database at all" * 300)
            return cluster.status()[0].get("record_error") is not None

        wait_until(complains, 60, "a complaint of the record")
        (said,) = [line for line in txha("status", "--dir", cluster.directory).stdout.splitlines() if "damaged" in line]
        assert said.startswith("node-1: the coordination store") and "`txha recover`" in said
