"""Prepared branches of distributed transactions on real nodes: through the loss of any of them, and of all at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Basic, Queue

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.amqp.dtx_client import DtxChannel, xid
from tests.broker_plugin.amqp.plain_channel import Refused
from tests.processes.many_branches import measure, port_of
from txobserver.dtx_wire import XidFields

X, Y = xid("x"), xid("y")
OK, HEURISTICALLY_COMMITTED = 0, 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster") as running:
        yield running


def channel_at(cluster: LocalCluster, node: str) -> DtxChannel:
    """A channel through this node, primary or not."""
    return DtxChannel(port_of(cluster, node))


def names(cluster: LocalCluster) -> list[str]:
    return [node["name"] for node in cluster.status()]


def in_doubt(cluster: LocalCluster, which: XidFields = X) -> str:
    """Prepare a branch that takes job 1 and puts a result; job 2 is left. Its client ends. Returns the primary."""
    primary = cluster.primary()
    assert primary is not None
    channel = channel_at(cluster, cluster.backups()[0])  # which passes the client through
    channel.declare("in")
    channel.declare("out")
    channel.publish("in", b"job 1", b"job 2")
    channel.start(which)
    assert channel.take("in") == b"job 1"
    channel.publish("out", b"result")
    channel.end(which)
    assert channel.prepare(which) == OK
    channel.client.close()
    return primary


def survivor(cluster: LocalCluster, lost: str) -> DtxChannel:
    """A channel at the node that is primary now."""
    wait_until(lambda: cluster.primary() not in (None, lost), 20, "another primary")
    primary = cluster.primary()
    assert primary is not None
    return channel_at(cluster, primary)


def agreed(cluster: LocalCluster) -> None:
    """Every node is well, and all have the same in their queues."""
    wait_until(cluster.all_ready, 30, "all nodes ready")
    wait_until(
        lambda: len({json.dumps(node["queues"], sort_keys=True) for node in cluster.status()}) == 1, 10, "agreement"
    )


def test_a_prepared_branch_outlives_the_primary(cluster: LocalCluster) -> None:
    lost = in_doubt(cluster)
    cluster.kill(lost)
    channel = survivor(cluster, lost)
    assert channel.recover() == [X]
    assert channel.commit(X) == OK
    assert channel.drain("in") == [b"job 2"] and channel.drain("out") == [b"result"]
    cluster.start_node(lost)
    agreed(cluster)


def test_what_it_has_taken_is_in_nobody_s_hands_on_the_new_primary(cluster: LocalCluster) -> None:
    lost = in_doubt(cluster)
    cluster.kill(lost)
    channel = survivor(cluster, lost)
    assert channel.count("in") == 1
    channel.ask(Basic.Consume(0, "in", "c"))
    channel.wait_for_deliveries(1)
    other = channel.another()
    assert other.get("in") is None and other.ask(Queue.Purge(0, "in")).message_count == 0
    assert other.rollback(X) == OK
    channel.wait_for_deliveries(2)
    assert [delivery[1:] for delivery in channel.deliveries] == [(False, b"job 2"), (True, b"job 1")]
    assert other.count("out") == 0


def test_prepared_branches_outlive_all_nodes_at_once(cluster: LocalCluster) -> None:
    lost = in_doubt(cluster)
    channel = channel_at(cluster, lost)
    channel.prepared(Y, "out", b"never")
    channel.publish_in(xid("unprepared"), "out", b"never")
    for name in names(cluster):
        cluster.kill(name)
    for name in ("node-1", "node-2", "node-3"):
        cluster.start_node(name)
    channel = survivor(cluster, "")
    assert sorted(channel.recover()) == [X, Y]
    assert channel.count("in") == 1
    assert channel.rollback(Y) == OK and channel.commit(X) == OK
    assert channel.drain("in") == [b"job 2"] and channel.drain("out") == [b"result"]
    agreed(cluster)
    with pytest.raises(Refused, match="404"):
        channel.commit(xid("unprepared"), one_phase=True)


@pytest.mark.every
def test_a_joiner_during_a_prepared_branch(cluster: LocalCluster) -> None:
    """It becomes ready while the branch waits, has it when it is made primary, and commits it."""
    lost = in_doubt(cluster)
    joiner = cluster.backups()[0]
    cluster.kill(joiner)
    directory = cluster.directory / joiner
    for part in ("log", "state"):
        shutil.rmtree(directory / part)
    (directory / "identity.json").unlink()
    cluster.start_node(joiner)
    wait_until(cluster.all_ready, 30, "the joiner ready")
    cluster.promote(joiner)
    wait_until(lambda: cluster.primary() == joiner, 15, "the joiner as primary")
    cluster.kill(lost)
    channel = channel_at(cluster, joiner)
    assert channel.recover() == [X] and channel.count("in") == 1
    assert channel.commit(X) == OK
    assert channel.drain("in") == [b"job 2"] and channel.drain("out") == [b"result"]
    cluster.start_node(lost)
    agreed(cluster)


def test_a_decision_on_a_global_transaction_outlives_the_primary(cluster: LocalCluster) -> None:
    primary = cluster.primary()
    assert primary is not None
    channel = channel_at(cluster, primary)
    channel.declare("out")
    late = xid("g", "late")
    for branch in ("1", "2"):
        channel.prepared(xid("g", branch), "out", branch.encode())
    assert channel.decide("g", True) == OK
    cluster.kill(primary)
    channel = survivor(cluster, primary)
    assert channel.recover() == [] and sorted(channel.drain("out")) == [b"1", b"2"]
    assert channel.globally("g")[0] == 1
    channel.publish_in(late, "out", b"late")
    assert channel.prepare(late) == 1


@pytest.mark.every
def test_ten_thousand_prepared_branches() -> None:
    """All are listed, page by page, also by the next primary, and can be committed there."""
    assert measure(10_000)["branches"] == 10_000


def txha(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "broker_plugin.cli.main", "dtx", *arguments, "--dir", str(cluster.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def told(cluster: LocalCluster, *arguments: str) -> Any:
    """The answer as JSON."""
    answer = txha(cluster, *arguments, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_an_operator_decides_and_a_late_coordinator_is_told(cluster: LocalCluster) -> None:
    lost = in_doubt(cluster)
    (row,) = told(cluster, "list")
    assert row["xid"] == "1:x:b" and row["state"] == "prepared" and row["age"] >= 0 and row["generation"] >= 1
    assert row["enqueues"] == {"out": 1} and row["dequeues"] == {"in": 1}
    assert {**told(cluster, "show", "1:x:b"), "age": 0} == {**row, "age": 0, "decision": "unknown"}
    assert "1:x:b" in txha(cluster, "list").stdout
    assert told(cluster, "commit", "1:x:b")["state"] == "heuristically committed"
    cluster.kill(lost)
    channel = survivor(cluster, lost)
    assert channel.drain("out") == [b"result"] and channel.drain("in") == [b"job 2"]
    assert [each["state"] for each in told(cluster, "list")] == ["heuristically committed"]
    assert channel.recover() == [X] and channel.rollback(X) == HEURISTICALLY_COMMITTED
    assert told(cluster, "forget", "1:x:b")["state"] == "forgotten"
    assert channel.recover() == [] and told(cluster, "list") == []


@pytest.mark.every
def test_what_an_operator_cannot_do(cluster: LocalCluster) -> None:
    primary = in_doubt(cluster)
    for arguments, status, sentence in [
        (("commit", "1:nobody:b"), 1, "there is no branch 1:nobody:b"),
        (("show", "1:nobody:b"), 1, "there is no branch 1:nobody:b"),
        (("forget", "1:x:b"), 1, "has not ended"),
        (("rollback", "nonsense"), 2, "'nonsense' is no xid"),
    ]:
        answer = txha(cluster, *arguments)
        assert answer.returncode == status and sentence in answer.stderr and answer.stderr.count("\n") == 1
    cluster.kill(primary)
    for name in names(cluster):
        if name != primary:
            cluster.kill(name)
    answer = txha(cluster, "list")
    assert answer.returncode == 1 and "no node of" in answer.stderr
