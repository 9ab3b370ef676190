"""What the disks of real nodes do: synced before acknowledged, and out of the ready set when one is full or damaged."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until

BIG = b"x" * 100_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster") as running:
        yield running


def channel_to(cluster: LocalCluster, node: str) -> BlockingChannel:
    parameters = pika.URLParameters(cluster.url(node))
    parameters.heartbeat = 0
    return pika.BlockingConnection(parameters).channel()


def completed_syncs(trace: Path) -> list[float]:
    """When each fdatasync of a traced process returned, in seconds since 1970."""
    times = []
    for line in trace.read_text().splitlines():
        found = re.search(r"(\d{9,}\.\d+) .*fdatasync.*= 0 <(\d+\.\d+)>", line)
        if found:
            begin, took = float(found[1]), float(found[2])
            times.append(begin if "resumed" in line else begin + took)
    return times


def test_a_sync_completes_on_every_node_before_the_answer(cluster: LocalCluster, tmp_path: Path) -> None:
    """P11: confirm, commit-ok and declare-ok each come after a completed sync on each of the three nodes."""
    primary = cluster.primary()
    assert primary is not None
    channel = channel_to(cluster, primary)
    channel.queue_declare("traced", durable=True)
    transactional = channel_to(cluster, primary)
    transactional.tx_select()
    channel.confirm_delivery()
    tracers = []
    for node in ("node-1", "node-2", "node-3"):
        trace = tmp_path / f"{node}.trace"
        command = [
            "strace",
            "-f",
            "-ttt",
            "-T",
            "-e",
            "trace=fdatasync",
            "-o",
            str(trace),
            "-p",
            str(cluster.pid(node)),
        ]
        tracers.append((subprocess.Popen(command, stderr=subprocess.PIPE, text=True), trace))
    for tracer, _ in tracers:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
    asked: list[tuple[str, float, float]] = []

    def timed(name: str, action: object) -> None:
        time.sleep(0.2)
        began = time.time()
        action()  # type: ignore[operator]
        asked.append((name, began, time.time()))

    for _ in range(3):
        timed("confirm", lambda: channel.basic_publish("", "traced", b"m"))
        transactional.basic_publish("", "traced", b"t")
        timed("commit", transactional.tx_commit)
    timed("declare", lambda: channel.queue_declare("traced too", durable=True))
    for tracer, _ in tracers:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)
    for _, trace in tracers:
        syncs = completed_syncs(trace)
        for name, began, answered in asked:
            assert any(began < at < answered for at in syncs), f"no sync in {trace.name} before the {name}"


@pytest.mark.every
def test_a_backup_whose_disk_is_full_leaves_the_ready_set(cluster: LocalCluster) -> None:
    """It says so in one line and ends; it fails one transaction at most, and nothing that was answered is lost."""
    victim = cluster.backups()[0]
    directory = cluster.directory / victim
    primary = cluster.primary()
    assert primary is not None
    with small_disk(cluster, victim, directory):
        channel = channel_to(cluster, primary)
        channel.queue_declare("full", durable=True)
        channel.tx_select()
        failed = 0
        for _ in range(120):
            try:
                channel.basic_publish("", "full", BIG)
                channel.tx_commit()
            except ChannelClosedByBroker as error:
                assert error.reply_code == 406 and "no space is left" in error.reply_text
                failed += 1
                channel = channel_to(cluster, primary)
                channel.tx_select()
        assert failed <= 1
        wait_until(lambda: cluster.state(victim) == "down", 10, "the end of the full node")
        status = next(node for node in cluster.status() if node["state"] == "active")
        assert victim not in status["ready_set"]
        assert channel.queue_declare("full", passive=True).method.message_count == 120 - failed
        log = (cluster.directory.parent / "victim.log").read_text()
        assert "no space is left" in log


class small_disk:
    """The node's directory moved to a file system of 6 MiB while the node is down; started again there."""

    def __init__(self, cluster: LocalCluster, name: str, directory: Path) -> None:
        self._cluster, self._name, self._directory = cluster, name, directory

    def __enter__(self) -> None:
        cluster, directory = self._cluster, self._directory
        cluster.kill(self._name)
        aside = directory.with_name(directory.name + ".aside")
        time.sleep(0.3)
        shutil.move(directory, aside)
        directory.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(directory)], check=False)
        assert mounted.returncode == 0, "this test mounts a small file system, which takes root"
        for each in aside.iterdir():
            if each.is_dir():
                shutil.copytree(each, directory / each.name)
            else:
                shutil.copy(each, directory / each.name)
        cluster.start_node(self._name, log=cluster.directory.parent / "victim.log")
        cluster.wait_state(self._name, "ready")

    def __exit__(self, *error: object) -> None:
        if self._cluster.state(self._name) != "down":
            self._cluster.kill(self._name)
        wait_until(lambda: not self._cluster.processes.runs(self._name), 30, f"the end of {self._name}")
        subprocess.run(["umount", str(self._directory)], check=True)


def test_a_damaged_store_is_refused_and_a_new_one_rejoins(cluster: LocalCluster) -> None:
    """A flipped bit in the log: the node does not start, says why, and comes back with a new store."""
    primary = cluster.primary()
    victim = cluster.backups()[0]
    assert primary is not None
    channel = channel_to(cluster, primary)
    channel.queue_declare("kept", durable=True)
    channel.confirm_delivery()
    for _ in range(50):
        channel.basic_publish("", "kept", b"m" * 1000)
    cluster.kill(victim)
    directory = cluster.directory / victim
    segment = sorted((directory / "log").iterdir())[-1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    log = cluster.directory.parent / "damaged.log"
    cluster.start_node(victim, log=log)
    wait_until(lambda: log.exists() and "is damaged at offset" in log.read_text(), 10, "the refusal")
    assert os.path.getsize(segment) == len(data), "nothing was cut"
    for part in ("log", "state"):
        shutil.rmtree(directory / part)
    (directory / "identity.json").unlink()
    cluster.start_node(victim)
    cluster.wait_state(victim, "ready")
    wait_until(lambda: len({tuple(node["queues"]["kept"].items()) for node in cluster.status()}) == 1, 10, "agreement")
