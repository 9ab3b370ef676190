"""Nodes whose broker is a process of its own (docs/hosts.md): the tiny host, in the place of the embedded broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from python_tests.harness.cluster import HOST_COMMAND, LocalCluster
from python_tests.harness.waiting import wait_until
from tests.support.cases import some_of

ROOT = Path(__file__).parents[2]
TINY = f"{sys.executable} -m tests.support.tiny_host {{socket}}"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setenv(HOST_COMMAND, TINY)
    with LocalCluster(tmp_path / "cluster", 3, "--set", "timing.lease_ttl=2") as cluster:
        yield cluster


def channel_at(url: str, heartbeat: int = 30) -> BlockingChannel:
    """A channel of a connection that is given up about two heartbeats (in seconds) after the last word of the other."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = heartbeat
    return pika.BlockingConnection(parameters).channel()


def listens_at(pid: int) -> int:
    """The one port at which a process listens for IPv4."""
    sockets = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (port,) = {int(each[1].split(":")[1], 16) for each in lines if each[3] == "0A" and f"socket:[{each[9]}]" in sockets}
    return port


def commit(channel: BlockingChannel, bodies: list[str]) -> None:
    for body in bodies:
        channel.basic_publish("", "q", body.encode())
    channel.tx_commit()


def drained(url: str) -> list[str]:
    channel, found = channel_at(url), []
    while True:
        method, _, body = channel.basic_get("q", auto_ack=True)
        if method is None:
            channel.connection.close()
            return found
        found.append(body.decode())


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_the_tiny_host_passes_the_transaction_suites() -> None:
    """P1 to P4, P8: what clients of three makes see of transactions, also when the primary is killed in the middle."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "python_tests/suites/tx"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, HOST_COMMAND: TINY}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


def test_host_broker_is_killed(cluster: LocalCluster) -> None:
    """P2, P12 (``host_broker_is_killed``): its node ends in order, another one serves, and the node comes back."""
    primary = cluster.primary()
    assert primary is not None
    channel = channel_at(cluster.url(primary))
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    commit(channel, ["a", "b"])
    cluster.hosts.kill(primary)
    wait_until(lambda: not cluster.processes.runs(primary), 30, "the end of its node")
    wait_until(lambda: cluster.primary() not in (None, primary), 30, "another primary")
    log = cluster.directory.with_name("cluster.err").read_text()
    assert "the host broker has closed its connection" in log
    other = cluster.primary()
    assert other is not None
    assert drained(cluster.url(other)) == ["a", "b"]
    cluster.hosts.start()
    cluster.start_node(primary)
    wait_until(cluster.all_ready, 30, "all nodes ready")


@pytest.mark.parametrize("stops", some_of(["host and node", "node"], suite=["node"]))
def test_host_broker_wakes_up_late(cluster: LocalCluster, stops: str) -> None:
    """P3, P10 (``host_broker_wakes_up_late``): stopped for longer than its node's lease, it says nothing to its
    clients. So it is with one that has worked on, and whose node cannot tell it that the lease is over."""
    primary = cluster.primary()
    assert primary is not None
    channel = channel_at(cluster.url(primary))
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    commit(channel, ["a"])
    commit(channel, ["b"])
    # Not by way of the node: what is stopped passes nothing on.
    again = channel_at(f"amqp://guest:guest@127.0.0.1:{listens_at(cluster.hosts.pid(primary))}/")
    method, _, _ = again.basic_get("q")  # from here on the host can give it out again without its node
    again.basic_nack(method.delivery_tag)
    again.basic_qos(prefetch_count=1)  # the nack is carried out
    stopped = [cluster.pid(primary)] if stops == "node" else [cluster.hosts.pid(primary), cluster.pid(primary)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: cluster.primary() not in (None, primary), 60, "another primary")
        other = cluster.primary()
        assert other is not None
        assert drained(cluster.url(other)) == ["a", "b"]
        os.kill(cluster.hosts.pid(primary), signal.SIGCONT)
        with suppress(AMQPError, OSError):
            method, _, body = again.basic_get("q")
            pytest.fail(f"it is told {method} {body!r} by who has lost its lease")
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    wait_until(cluster.all_ready, 60, "all nodes ready")


def test_a_node_whose_broker_has_not_come_takes_part_in_nothing_and_ends_when_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HOST_COMMAND, raising=False)
    with LocalCluster(tmp_path / "cluster", 3) as cluster:
        backup = cluster.backups()[0]
        cluster.kill(backup)
        log = tmp_path / "waiting.log"
        cluster.start_node(backup, settings=["host.socket=host.sock"], log=log)
        wait_until(lambda: "waiting for the host broker to connect to" in log.read_text(), 30, "that it says so")
        os.kill(cluster.pid(backup), signal.SIGTERM)
        wait_until(lambda: not cluster.processes.runs(backup), 30, "its end")
        assert cluster.processes.exit_status(backup) == 0
        assert not (cluster.directory / backup / "host.sock").exists()
