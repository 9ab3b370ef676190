"""``coordination_child_hangs`` with real processes: a node whose coordination process stands still, nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster") as running:
        yield running


def coordination_process_of(node: int) -> int:
    """The process id of a node's coordination process."""
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(node)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    (line,) = [line for line in found if "coordination_process" in line]
    return int(line.split()[0])


def test_a_stopped_coordination_process(cluster: LocalCluster) -> None:
    """The primary steps down by its lease, another takes over; then the process is replaced, and the node is ready."""
    primary = cluster.primary()
    assert primary is not None
    child = coordination_process_of(cluster.pid(primary))
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: cluster.primary() not in (None, primary), 60, "another primary")
    wait_until(cluster.all_ready, 60, "the stopped process to be replaced")
    assert coordination_process_of(cluster.pid(primary)) != child
    log = (cluster.directory / primary / "node.log").read_text()
    assert "gives no answer and was killed" in log


@pytest.mark.every
def test_a_node_is_told_to_end_while_its_coordination_process_is_stopped(cluster: LocalCluster) -> None:
    node = cluster.backups()[0]
    cluster.kill(node)
    cluster.start_node(node, settings=["timing.lease_ttl=100"])
    cluster.wait_state(node, "ready")
    os.kill(coordination_process_of(cluster.pid(node)), signal.SIGSTOP)
    os.kill(cluster.pid(node), signal.SIGTERM)
    wait_until(lambda: cluster.processes.exit_status(node) is not None, 60, "the end of the node")
    assert cluster.processes.exit_status(node) == 0


@pytest.mark.every
def test_a_primary_is_told_to_end_while_its_coordination_process_is_stopped(tmp_path: Path) -> None:
    """It would give its lease up, and a renewal may be on its way: neither is waited for."""
    with LocalCluster(tmp_path / "alone", 1) as cluster:
        node = cluster.primary()
        assert node is not None
        os.kill(cluster.pid(node), signal.SIGTERM)  # its lease is given up: the next one need not run out
        cluster.start_node(node, settings=["timing.lease_ttl=100"])
        cluster.wait_state(node, "active")
        os.kill(coordination_process_of(cluster.pid(node)), signal.SIGSTOP)
        os.kill(cluster.pid(node), signal.SIGTERM)
        wait_until(lambda: cluster.processes.exit_status(node) is not None, 60, "the end of the node")
        assert cluster.processes.exit_status(node) == 0
