"""Real processes and a relay that drops what nodes send each other: no connection is closed, and commits go on.

All of a way, or one connection by itself, as a firewall does that has forgotten it. No other timeout ends a wait here:
a backup may owe an acknowledgement for an hour. So that a publish is confirmed shows that the deadline of the link has
taken the backup out of the ready set.
"""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from python_tests.harness.stress.cluster import USER, StressCluster
from python_tests.harness.stress.network import CUT, Impairment, Proxied
from python_tests.harness.waiting import wait_until

SETTINGS = ["timing.prepare_timeout=3600", "timing.backup_timeout=3600"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StressCluster]:
    with StressCluster(tmp_path_factory.mktemp("dropped") / "cluster", 3, Proxied(3), SETTINGS) as running:
        yield running


@pytest.fixture
def cluster(running: StressCluster) -> StressCluster:
    """The same for all tests: each of them leaves it well, or the next one says so."""
    wait_until(running.all_ready, 60, "all nodes ready")
    return running


def log_of(cluster: StressCluster, name: str) -> str:
    """What a node has logged, of all of the cluster's life."""
    return cluster.log_of(name).read_text()


def publish(cluster: StressCluster, name: str, body: bytes = b"m") -> None:
    """One durable message at this node, confirmed: on each member of the ready set."""
    credentials = pika.PlainCredentials(USER, USER)
    port = cluster.ports[cluster.names.index(name)]
    parameters = pika.ConnectionParameters("127.0.0.1", port, credentials=credentials, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ways", ["both", "to the backup", "from the backup"])
def test_commits_go_on_when_packets_to_a_backup_are_dropped(cluster: StressCluster, ways: str) -> None:
    primary, cut = cluster.primary(), cluster.backups()[0]
    assert primary is not None
    here, there = cluster.names.index(primary), cluster.names.index(cut)
    dropped = {"both": [(here, there), (there, here)], "to the backup": [(here, there)]}.get(ways, [(there, here)])
    silent = {name: log_of(cluster, name).count("nothing has come from") for name in (primary, cut)}
    number = cluster.network.impose(Impairment(frozenset(dropped), CUT))
    try:
        publish(cluster, primary)
        status = next(node for node in cluster.status() if node["name"] == primary)
        assert status["state"] == "active" and cut not in status["ready_set"]
        said = {name: log_of(cluster, name).count("nothing has come from") - silent[name] for name in silent}
        assert said[cut if ways == "to the backup" else primary] > 0
        assert f"backup {cut} is silent" not in log_of(cluster, primary)
    finally:
        cluster.network.lift(number)
    wait_until(cluster.all_ready, 60, "all nodes ready again")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("of_the_primary", [True, False], ids=["of the primary", "of the backup"])
def test_one_of_two_connections_is_dead(cluster: StressCluster, of_the_primary: bool) -> None:
    """``one_of_two_connections_is_dead``: its end is closed and made anew, though all that comes by the other is well.

    Where nothing ends it the relay keeps it for good: the kernel's own quarter of an hour does not help here.
    """
    primary, other = cluster.primary(), cluster.backups()[0]
    assert primary is not None and isinstance(cluster.network, Proxied)
    dialler, dialled = (primary, other) if of_the_primary else (other, primary)
    silent = log_of(cluster, dialled).count(f"nothing has come from {dialler}")
    assert cluster.network.forget(cluster.names.index(dialler), cluster.names.index(dialled)) == 1

    def noticed() -> bool:
        return log_of(cluster, dialled).count(f"nothing has come from {dialler}") > silent

    wait_until(noticed, 60, f"{dialled} missing {dialler}")
    publish(cluster, primary)
    wait_until(cluster.all_ready, 60, "all nodes ready again")
    publish(cluster, primary)


@pytest.mark.timeout(240)
def test_a_backup_that_is_frozen_is_out_by_the_deadline_of_its_link(cluster: StressCluster) -> None:
    primary, frozen = cluster.primary(), cluster.backups()[0]
    assert primary is not None
    with cluster.frozen(frozen):
        publish(cluster, primary)
        status = next(node for node in cluster.status() if node["name"] == primary)
        assert frozen not in status["ready_set"]
    wait_until(cluster.all_ready, 60, "all nodes ready again")
