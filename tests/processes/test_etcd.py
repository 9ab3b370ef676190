"""Three real nodes whose record is in a real etcd of three members: who is primary when nodes and members end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from broker_plugin.cli.layout import cluster_id
from broker_plugin.coordination.etcd.etcd_coordination import EtcdCoordination
from broker_plugin.coordination.etcd.place import SCHEME, EtcdPlace
from ha.membership.record import CoordinationError, Record
from python_tests.harness.etcd_cluster import EtcdCluster
from python_tests.harness.failover import Clients
from python_tests.harness.load import Load
from python_tests.harness.servers.etcd import EtcdServers
from python_tests.harness.waiting import wait_until
from tests.support.held_line import HeldLine

LOAD = Load(pika_workers=3, aio_connections=1, aio_channels=2, think=0.02)
PATIENT = ("timing.lease_ttl=8", "timing.renew_every=1")
"""Longer than an election of etcd takes, on a busy machine too"""
PATIENCE = 90.0
APART = "node-1"
"""The node that can be cut off from etcd alone"""


@pytest.fixture(scope="module", name="servers")
def three_members() -> Iterator[EtcdServers]:
    with EtcdServers(3) as servers:
        yield servers


@pytest.fixture(scope="module", name="lines")
def lines_of_a_node(servers: EtcdServers) -> Iterator[list[HeldLine]]:
    """One of the nodes reaches the members by these."""
    with ExitStack() as stack:
        yield [stack.enter_context(HeldLine(port)) for port in servers.ports]


@pytest.fixture(scope="module", name="running")
def three_nodes(
    servers: EtcdServers, lines: list[HeldLine], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EtcdCluster]:
    directory, address = tmp_path_factory.mktemp("etcd") / "c", servers.address()
    others = {APART: address}
    for port, line in zip(servers.ports, lines, strict=True):
        others[APART] = others[APART].replace(f":{port}", f":{line.port}")
    with EtcdCluster(directory, address, 3, *PATIENT, others=others) as running:
        assert isinstance(running, EtcdCluster)
        yield running


@pytest.fixture(name="cluster")
def one_that_is_well(servers: EtcdServers, running: EtcdCluster) -> EtcdCluster:
    """The same for all tests: each leaves it well, or the next one says so."""
    servers.start(*servers.missing())
    wait_until(running.all_ready, PATIENCE, "all nodes ready")
    return running


@pytest.fixture(name="clients")
def at_work(cluster: EtcdCluster) -> Iterator[Clients]:
    """In the end everything that they were told is judged."""
    clients = Clients(cluster.urls, LOAD)
    clients.start()
    clients.wait_committed(30, PATIENCE)
    yield clients
    clients.wait_committed(30, PATIENCE)
    verdict = clients.drain(PATIENCE)
    assert not verdict.broken and verdict.committed >= 60


def reign(cluster: EtcdCluster) -> tuple[str | None, int]:
    """Who is primary, and the generation."""
    return cluster.primary(), max(node.get("generation", 0) for node in cluster.status())


def record_of(cluster: EtcdCluster) -> Record | None:
    """None also where etcd gives no answer."""
    place = EtcdPlace.of_url(cluster.address.removeprefix(SCHEME))
    with closing(EtcdCoordination(place, cluster_id(cluster.directory) or "")) as store:
        try:
            return store.read()
        except CoordinationError:
            return None


def wait_renewed(cluster: EtcdCluster, times: int = 3) -> None:
    """The lease is renewed so often from now on."""
    known = record_of(cluster)
    while known is None:
        known = record_of(cluster)
    until = known.version + times
    wait_until(lambda: (found := record_of(cluster)) is not None and found.version >= until, PATIENCE, "renewals", 0.2)


@pytest.mark.every
def test_the_primary_dies(cluster: EtcdCluster, clients: Clients) -> None:
    was, generation = reign(cluster)
    assert was is not None
    cluster.kill(was)
    wait_until(lambda: cluster.primary() not in (None, was), PATIENCE, "another primary")
    assert reign(cluster)[1] > generation
    cluster.start_node(was)
    wait_until(cluster.all_ready, PATIENCE, "all nodes ready")


def test_another_leader_of_etcd_is_no_reason_to_take_over(
    servers: EtcdServers, cluster: EtcdCluster, clients: Clients
) -> None:
    """P10: the same primary goes on, in the same generation."""
    before, leader = reign(cluster), servers.leader()
    servers.kill(leader)
    wait_renewed(cluster)
    clients.wait_committed(30, PATIENCE)
    servers.start(leader)
    wait_renewed(cluster)
    assert reign(cluster) == before and cluster.all_ready()


@pytest.mark.every
def test_members_that_hang_or_end_one_at_a_time_are_no_reason_either(
    servers: EtcdServers, cluster: EtcdCluster, clients: Clients
) -> None:
    """Also the one that a node speaks to."""
    before = reign(cluster)
    for member in range(3):
        with servers.frozen(member):
            wait_renewed(cluster)
        wait_renewed(cluster)
    assert reign(cluster) == before


def test_a_primary_that_is_cut_off_from_etcd_alone_is_succeeded(
    cluster: EtcdCluster, clients: Clients, lines: list[HeldLine]
) -> None:
    """P10: it reaches the other nodes, and its lease runs out. What it has sent to etcd arrives late, and changes
    nothing that matters."""
    if cluster.primary() != APART:
        cluster.promote(APART)
        wait_until(lambda: cluster.primary() == APART and cluster.all_ready(), PATIENCE, f"{APART} as primary")
        clients.wait_committed(30, PATIENCE)
    generation = reign(cluster)[1]
    with ExitStack() as stack:
        for line in lines:
            stack.enter_context(line.held())
        wait_until(lambda: cluster.primary() not in (None, APART), PATIENCE, "another primary")
        clients.wait_committed(30, PATIENCE)
        wait_until(lambda: complains(cluster, APART), PATIENCE, "a complaint")
    wait_until(cluster.all_ready, PATIENCE, "all nodes ready")
    assert cluster.primary() != APART and reign(cluster)[1] > generation


def test_without_etcd_nothing_is_acknowledged_and_with_it_again(
    servers: EtcdServers, cluster: EtcdCluster, clients: Clients
) -> None:
    """P10: all members end for longer than the lease. Nodes neither end nor have to be told anything."""
    pids = [cluster.pid(name) for name in cluster.names]
    servers.kill(0, 1, 2)
    wait_until(lambda: cluster.primary() is None, PATIENCE, "the end of the lease")
    committed = clients.history.committed()
    for node in cluster.status():
        wait_until(lambda one=node["name"]: complains(cluster, one), PATIENCE, "a complaint")  # type: ignore[misc]
    assert cluster.primary() is None and clients.history.committed() == committed
    servers.start(0, 1, 2)
    wait_until(cluster.all_ready, PATIENCE, "all nodes ready")
    assert [cluster.pid(name) for name in cluster.names] == pids


def complains(cluster: EtcdCluster, name: str) -> bool:
    """Whether this node's status says that etcd gives no answer."""
    (node,) = [node for node in cluster.status() if node["name"] == name]
    return "etcd gives no answer" in (node.get("record_error") or "")
