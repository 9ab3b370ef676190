"""A cluster whose logs are reclaimed while ``txha archive`` keeps them: a node that is lost is made from both."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.pipeline.archive.lake import Lake
from recovery.store.aside import PARTS
from recovery.store.identity import read_identity
from recovery.store.segment import segment_firsts
from tests.broker_plugin.amqp.dtx_client import DtxChannel
from tests.processes.crashed import status_of, txha
from tests.processes.many_branches import port_of
from tests.processes.test_rebuild import BRANCH, joins, rebuilt, work
from tests.recovery.pipeline.archive.test_archive_command import SIGKILLED, archive

SETTINGS = ("store.checkpoint_seconds=0.3", "store.segment_bytes=4096", "timing.lease_ttl=30")
"""The primary stays the same, however busy the machine is with Spark."""


def kept(cluster: LocalCluster, lake: Lake, crash_point: str | None = None) -> int:
    """Archive what has passed the commit point; how many files of each node there are then."""
    command = [str(cluster.directory), "--to", str(lake.directory), "--grace", "0"]
    done = archive(*command, crash_point=crash_point)
    assert done.returncode == (SIGKILLED if crash_point else 0), done.stderr[-2000:]
    nodes = [entry.node for entry in lake.current().files]
    assert set(nodes) == {status["name"] for status in cluster.status()}
    return max(nodes.count(node) for node in nodes)


def without_its_store(cluster: LocalCluster, node: str, aside: Path) -> Path:
    """The directory of a node that is killed, and has lost its disk."""
    cluster.kill(node)
    aside.mkdir()
    for part in PARTS:
        (cluster.directory / node / part).rename(aside / part)
    return cluster.directory / node


def publish(cluster: LocalCluster, *bodies: bytes) -> None:
    """By a client that has not been idle while an archive was made; behind it they have passed the commit point."""
    channel = DtxChannel(port_of(cluster, cluster.primary() or ""))
    channel.publish("in", *bodies)
    channel.count("in")


def reclaimed(cluster: LocalCluster, node: str) -> Path:
    """The directory of this node, which keeps no more of its log than it has to; once there is a next checkpoint."""
    cluster.kill(node)
    cluster.start_node(node, settings=(*SETTINGS, "store.retention_seconds=0"))
    cluster.wait_state(node, "ready")
    publish(cluster, b"something to write")
    directory = cluster.directory / node
    wait_until(lambda: segment_firsts(directory / "log")[0] > 1, 20, "its log to be reclaimed")
    return directory


def damaged(lake: Lake, to: Path) -> Path:
    """A copy of an archive, whose files have lost their ends: what one node's lack another's would do for."""
    shutil.copytree(lake.directory, to)
    for path in Lake(to).files():
        path.write_bytes(path.read_bytes()[:200])
    return to


@pytest.mark.standalone
@pytest.mark.timeout(600)
def test_a_lost_node_is_made_from_archive_and_log_and_becomes_ready(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with LocalCluster(tmp_path / "cluster", 3, *(f"--set={each}" for each in SETTINGS)) as cluster:
        primary = cluster.primary()
        assert primary is not None
        other, lost = cluster.backups()
        work(cluster, primary)
        assert kept(cluster, lake) == 1
        publish(cluster, *(b"later %d" % number for number in range(100)))
        assert kept(cluster, lake, "archive.compacted") == 2

        source = reclaimed(cluster, other)
        into = without_its_store(cluster, lost, tmp_path / "lost")
        refused = txha("rebuild", "--log", source, "--into", into)
        assert refused.returncode == 2 and "are in neither the archive nor the log" in refused.stderr
        ruined = damaged(lake, tmp_path / "damaged")
        for archived, sentence in ((ruined, f"{ruined} cannot be read"), (tmp_path, f"{tmp_path} is no archive")):
            before = sorted(into.rglob("*"))
            refused = txha("rebuild", "--archive", archived, "--log", source, "--into", into)
            assert (refused.returncode, refused.stdout) == (2, "") and sentence in refused.stderr
            assert len(refused.stderr.splitlines()) == 1 and sorted(into.rglob("*")) == before, "nothing is left of it"

        status = status_of(cluster, primary)
        identity = read_identity(source)
        assert identity is not None and lake.current().cluster_id == identity.cluster_id, "so it need not be said"
        words = ("--archive", lake.directory, "--log", source)
        small, _ = rebuilt(*words, "--into", tmp_path / "small")
        assert kept(cluster, lake) == 1, "compacted"
        made, _ = rebuilt(*words, "--into", into)
        for store in (small, made):
            assert (store["position"], store["queues"]) == (status["position"], status["queues"])
        publish(cluster, b"what it has to catch up with")
        joins(cluster, primary, lost, int(made["position"].partition(".")[2]), SETTINGS)
        wait_until(lambda: len({str(node["queues"]) for node in cluster.status()}) == 1, 20, "agreement")
        channel = DtxChannel(port_of(cluster, primary))
        assert channel.commit(BRANCH) == 0 and channel.drain("out") == [b"result"]
        wait_until(lambda: len({str(node["queues"]) for node in cluster.status()}) == 1, 20, "agreement")
