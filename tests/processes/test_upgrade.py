"""A cluster from before there were identities of clusters: all its nodes start at once, and agree on one."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import msgspec

from broker_plugin.cli.layout import cluster_id
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.store.identity import GIVEN_LATER, read_identity
from tests.broker_plugin.coordination.test_sqlite_coordination import of_format_2
from tests.processes.crashed import NODES
from tests.processes.test_accepted_loss import confirmed

PATIENT = ("--set", "timing.lease_ttl=2")


def as_it_was_before(directory: Path) -> None:
    """Stores of format 1, and a record that names no identity."""
    for name in NODES:
        found = read_identity(directory / name)
        assert found is not None
        fields = {"format": 1, "cluster": found.cluster, "node": name, "incarnation": found.incarnation}
        check = zlib.crc32("\0".join(map(str, fields.values())).encode())
        (directory / name / "identity.json").write_text(json.dumps({**fields, "check": check}))
    store = SqliteCoordination(directory / "coordination.sqlite", cluster_id(directory) or "")
    record = store.read()
    assert record is not None
    store.close()
    (directory / "coordination.sqlite").unlink()
    of_format_2(directory / "coordination.sqlite", msgspec.structs.replace(record, cluster_id=""))


def test_a_cluster_of_before_gets_one_identity_and_keeps_its_data(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", 3, *PATIENT) as cluster:
        confirmed(cluster, cluster.primary() or "", b"kept")
        members = {name: read_identity(cluster.directory / name) for name in NODES}
    as_it_was_before(cluster.directory)
    with LocalCluster(tmp_path / "c", 3, *PATIENT) as cluster:
        wait_until(cluster.all_ready, 30, "all nodes ready")
        (given,) = {node["cluster_id"] for node in cluster.status()}
        assert given.startswith(GIVEN_LATER) and len(given) == 32
        assert [node["queues"]["q"]["messages"] for node in cluster.status()] == [1, 1, 1]
    for name, before in members.items():
        after = read_identity(cluster.directory / name)
        assert before is not None and after is not None
        assert (after.format, after.cluster_id, after.member) == (2, given, before.member), "the same member as before"
