"""A node that kills itself at each named point between two durable steps, as backup and as primary, under load.

One cluster and one load for all points; the last test drains it and judges the clients' record of the whole time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_tests.failover import Clients
from python_tests.load import Load
from python_tests.processes import LocalCluster
from python_tests.waiting import wait_until
from recovery.crash_points import CRASH_POINTS

SMALL = ("store.segment_bytes=40000", "store.checkpoint_seconds=0.3", "store.retention_seconds=1")
LOAD = Load(pika_workers=6, aio_connections=2, aio_channels=4, think=0.02)
AS_BACKUP = [p for p in CRASH_POINTS if p.split(".")[0] in ("log", "segment", "checkpoint", "reclaim")]
AS_PRIMARY = [*AS_BACKUP, "cas.before", "cas.committed"]
WITH_A_NEW_STORE = ["store.identity-written", "reset.segments-removed"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = [word for setting in SMALL for word in ("--set", setting)]
    with LocalCluster(tmp_path_factory.mktemp("crash") / "cluster", 3, *options) as running:
        yield running


@pytest.fixture(scope="module")
def clients(cluster: LocalCluster) -> Clients:
    running = Clients(cluster.urls, LOAD)
    running.start()
    running.wait_committed(20)
    return running


def all_ready(cluster: LocalCluster) -> bool:
    return sorted(node["state"] for node in cluster.status()) == ["active", "ready", "ready"]


def dead(cluster: LocalCluster, name: str) -> bool:
    try:
        cluster.pid(name)
    except LookupError:
        return True
    return False


def a_backup(cluster: LocalCluster) -> str:
    wait_until(lambda: all_ready(cluster), 30, "everyone ready")
    return next(node["name"] for node in cluster.status() if node["state"] == "ready")


def armed(cluster: LocalCluster, name: str, point: str) -> None:
    """Start a node again so that it will die there."""
    cluster.kill(name)
    cluster.start_node(name, {"TXHA_CRASH_POINT": point}, SMALL)


def dies_and_returns(cluster: LocalCluster, clients: Clients, name: str) -> None:
    wait_until(lambda: dead(cluster, name), 30, f"the death of {name}")
    cluster.start_node(name, None, SMALL)
    wait_until(lambda: all_ready(cluster), 30, "everyone ready again")
    clients.wait_committed(20)


@pytest.mark.parametrize("point", AS_BACKUP)
def test_a_backup_dies(cluster: LocalCluster, clients: Clients, point: str) -> None:
    name = a_backup(cluster)
    armed(cluster, name, f"{point}:2")
    dies_and_returns(cluster, clients, name)


@pytest.mark.parametrize("point", AS_PRIMARY)
def test_a_primary_dies(cluster: LocalCluster, clients: Clients, point: str) -> None:
    """Armed as a backup with a count that it will only reach in some time; made primary meanwhile, if it lives."""
    name = a_backup(cluster)
    armed(cluster, name, f"{point}:{40 if point.startswith('log.') else 3}")
    wait_until(lambda: cluster.state(name) == "ready" or dead(cluster, name), 30, f"{name} ready")
    command = [sys.executable, "-m", "broker_plugin.cli.main", "promote", "--dir", str(cluster.directory), name]
    subprocess.run(command, check=False, capture_output=True)
    dies_and_returns(cluster, clients, name)


@pytest.mark.parametrize("point", WITH_A_NEW_STORE)
def test_a_node_with_a_new_store_dies(cluster: LocalCluster, clients: Clients, point: str) -> None:
    name = a_backup(cluster)
    cluster.kill(name)
    wait_until(lambda: dead(cluster, name), 10, "its end")
    for part in ("log", "state"):
        shutil.rmtree(cluster.directory / name / part)
    Path(cluster.directory / name / "identity.json").unlink()
    cluster.start_node(name, {"TXHA_CRASH_POINT": point}, SMALL)
    dies_and_returns(cluster, clients, name)


def test_every_promise_was_kept(clients: Clients) -> None:
    verdict = clients.drain()
    assert not verdict.broken and verdict.committed > 100


def test_every_point_is_covered_here_or_in_the_store_s_own_tests() -> None:
    """Cutting a log behind a divergence takes a partition; tests/recovery kills a process at those points."""
    rest = set(CRASH_POINTS) - {*AS_BACKUP, *AS_PRIMARY, *WITH_A_NEW_STORE}
    assert rest == {"truncate.segments-removed", "truncate.cut"}
