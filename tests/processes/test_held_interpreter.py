"""Real nodes in a call that holds the interpreter lock, so that no thread of them runs; and their renewing processes.

A node that gets SIGUSR1 says so in a file and opens a pipe in such a call, which ends when a test opens the other end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from pamqp.commands import Basic, Channel, Queue, Tx
from pamqp.header import ContentHeader

from broker_plugin.cli.layout import COORDINATION_FILE, cluster_id
from broker_plugin.coordination.coordination_process import boottime
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import CoordinationError, Record
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.amqp.raw_client import RawClient, show
from tests.broker_plugin.coordination.test_renewing_process import is_gone
from tests.processes.test_coordination_hangs import coordination_process_of

pytestmark = pytest.mark.slice

LEASE = 3.0
TIMING = (f"timing.lease_ttl={LEASE:g}", "timing.hung_after=2.9")
HOLDS = (
    "import ctypes, os, signal, sys\n"
    "def hold(number, frame):\n"
    "    open(os.environ['HELD'], 'w').close()\n"
    "    call = ctypes.PyDLL(None)\n"
    "    call.close(call.open(os.environ['HOLD'].encode(), os.O_RDONLY))\n"
    "if 'node' in sys.orig_argv: signal.signal(signal.SIGUSR1, hold)\n"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("held")
    (directory / "sitecustomize.py").write_text(HOLDS)
    os.mkfifo(directory / "hold")
    environment = {"PYTHONPATH": str(directory), "HELD": str(directory / "held"), "HOLD": str(directory / "hold")}
    options = [word for setting in TIMING for word in ("--set", setting)]
    with LocalCluster(directory / "cluster", 2, *options, environment=environment) as running:
        yield running


@contextmanager
def held(cluster: LocalCluster, node: str) -> Iterator[None]:
    """This node is in the call."""
    mark = cluster.directory.with_name("held")
    mark.unlink(missing_ok=True)
    os.kill(cluster.pid(node), signal.SIGUSR1)
    wait_until(mark.exists, 20, "the call")
    try:
        yield
    finally:
        os.close(os.open(cluster.directory.with_name("hold"), os.O_WRONLY))


def record_of(cluster: LocalCluster) -> Record:
    """Of the file as it is now; it is locked while it is written."""
    path = cluster.directory / COORDINATION_FILE
    store = SqliteCoordination(path, cluster_id(cluster.directory) or "")
    for _ in range(20):
        try:
            record = store.read()
        except CoordinationError:
            continue
        finally:
            store.close()
        assert record is not None
        return record
    raise AssertionError("the coordination file stays locked")


def primary_of(cluster: LocalCluster) -> str:
    wait_until(cluster.all_ready, 60, "all nodes ready")
    primary = cluster.primary()
    assert primary is not None
    return primary


def in_a_transaction(cluster: LocalCluster, node: str, queue: str) -> RawClient:
    """A client that has published one message in a transaction that is open."""
    port = urlsplit(cluster.url(node)).port
    assert port is not None
    client = RawClient(port)
    for asked, answered in ((Channel.Open(), "OpenOk"), (Queue.Declare(queue=queue, durable=True), "DeclareOk")):
        client.send(1, asked)
        assert answered in show(client.next(60.0))
    client.send(1, Tx.Select())
    assert "SelectOk" in show(client.next())
    client.send(1, Basic.Publish(routing_key=queue), ContentHeader(body_size=0))
    client.send(1, Queue.Declare(queue=queue, durable=True))
    assert "DeclareOk" in show(client.next()), "it has been read"
    return client


def messages_in(cluster: LocalCluster, node: str, queue: str) -> str:
    port = urlsplit(cluster.url(node)).port
    assert port is not None
    client = RawClient(port)
    client.send(1, Channel.Open())
    client.next()
    client.send(1, Queue.Declare(queue=queue, passive=True))
    answer = show(client.next(60.0))
    client.close()
    return answer


@pytest.mark.every
def test_a_call_longer_than_the_lease_and_shorter_than_the_limit_costs_nothing(cluster: LocalCluster) -> None:
    """Also longer than the lease that the node asked for itself: what was renewed meanwhile counts."""
    primary = primary_of(cluster)
    client = in_a_transaction(cluster, primary, "kept")
    before = record_of(cluster)
    began = boottime()
    with held(cluster, primary):
        client.send(1, Tx.Commit())
        wait_until(lambda: record_of(cluster).version >= before.version + 3, 20, "renewals")
        wait_until(lambda: boottime() > began + LEASE, 20, "the end of the lease that the node knows of")
    assert "CommitOk" in show(client.next(60.0))
    client.close()
    after = record_of(cluster)
    assert (after.primary, after.generation, after.ready) == (before.primary, before.generation, before.ready)
    assert primary_of(cluster) == primary and "message_count=1" in messages_in(cluster, primary, "kept")
    said = (cluster.directory / primary / "node.log").read_text()
    assert "the coordination process renewed the lease meanwhile" in said and "stepping down" not in said


def test_a_call_longer_than_the_limit_costs_the_lease_and_nothing_is_answered_after_it(cluster: LocalCluster) -> None:
    """P10: what its client asked for meanwhile is not committed, and is not there at the next primary."""
    primary = primary_of(cluster)
    client = in_a_transaction(cluster, primary, "lost")
    with held(cluster, primary):
        client.send(1, Tx.Commit())
        wait_until(lambda: cluster.primary() not in (None, primary), 60, "another primary")
        other = cluster.primary()
        assert other is not None
    while (answer := client.next(60.0)) is not None:
        assert "CommitOk" not in show(answer)
    client.close()
    assert "message_count=0" in messages_in(cluster, other, "lost")
    assert primary_of(cluster) == other


def test_processes_that_are_killed(cluster: LocalCluster) -> None:
    """A renewing process gets a successor, and a node that is killed leaves none that renews."""
    primary = primary_of(cluster)
    child = coordination_process_of(cluster.pid(primary))
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: is_gone(child), 20, "the end of the renewing process")
    primary = primary_of(cluster)
    version = record_of(cluster).version
    wait_until(lambda: record_of(cluster).version > version + 1, 20, "renewals")
    child = coordination_process_of(cluster.pid(primary))
    killed = record_of(cluster)
    cluster.kill(primary)
    wait_until(lambda: is_gone(child), 20, "the end of the renewing process")
    wait_until(lambda: cluster.primary() not in (None, primary), 60, "another primary")
    assert record_of(cluster).generation > killed.generation
    cluster.start_node(primary, settings=TIMING)
    wait_until(cluster.all_ready, 60, "all nodes ready")
