"""Queues on a standalone cluster of Spark: two workers, of which one is killed in mid-batch, and a driver that is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.processes import LocalCluster
from python_tests.spark_queues.crashes import kill_session
from python_tests.spark_queues.hold import Hold
from python_tests.waiting import wait_until
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.names import Batch, batch_of
from tests.spark.events import apply_up_to, message, write_node
from tests.spark.queues.conftest import drained
from tests.spark.standalone import StandaloneCluster
from txobserver.events import Configure, GenerationStart, Publish

JOB = Path(__file__).with_name("submitted.py")
ROWS = sorted(str(number) for number in range(50))
PATIENCE = 240.0

pytestmark = [pytest.mark.standalone, pytest.mark.timeout(900)]
Submit = Callable[[str, str, int], subprocess.Popen[bytes]]


@pytest.fixture
def hold(tmp_path: Path) -> Hold:
    return Hold(tmp_path / "hold")


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """What all drivers of a test say."""
    return tmp_path / "said"


@pytest.fixture
def submit(
    standalone: StandaloneCluster,
    code: Path,
    cluster: LocalCluster,
    queue: str,
    hold: Hold,
    said: Path,
    tmp_path: Path,
) -> Iterator[Submit]:
    """Start a job: its kind, what it reads, and how many partitions it makes."""
    with ExitStack() as jobs:

        def started(kind: str, source: str, partitions: int) -> subprocess.Popen[bytes]:
            words = [kind, ",".join(cluster.urls), queue, source, str(tmp_path / "checkpoint"), str(partitions)]
            job = standalone.submit(JOB, words, code, said, hold.directory)
            jobs.callback(kill_session, job)
            return job

        yield started


def log_of(directory: Path) -> str:
    """The log of a node that is down, to which all rows were published."""
    frames = [[GenerationStart(1, "n1", ["n1/i"]), Configure(1, "queue.declare", "q", b"")]]
    frames += [[Publish(at, (1,), message(row))] for at, row in enumerate(ROWS, 1)]
    write_node(directory / "n1", frames)
    apply_up_to(directory / "n1", sum(map(len, frames)))
    return str(directory / "n1")


def in_doubt(cluster: LocalCluster) -> list[Batch]:
    with DtxConnection(*cluster.urls) as broker:
        return [batch for xid in broker.tpc_recover() if (batch := batch_of(xid)) is not None]


def records(cluster: LocalCluster) -> list[str]:
    return [name for name in cluster.status()[0]["queues"] if name.startswith("txha.spark.")]


def kill_worker_in_mid_batch(standalone: StandaloneCluster, cluster: LocalCluster, hold: Hold) -> None:
    """When both workers, each with one processor, have prepared a branch, and one of them cannot say so any more."""
    held = hold.held(PATIENCE)
    wait_until(lambda: len(in_doubt(cluster)) == 2, PATIENCE, "the other worker's branch")
    standalone.replace_worker_of(held)
    hold.let_go()


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_worker_and_then_the_driver_are_killed(
    standalone: StandaloneCluster,
    cluster: LocalCluster,
    channel: BlockingChannel,
    queue: str,
    submit: Submit,
    hold: Hold,
    said: Path,
    tmp_path: Path,
    kind: str,
) -> None:
    """The driver when the batch is decided and half committed; the next one makes other partitions."""
    channel.confirm_delivery()
    channel.queue_declare("in", durable=True)
    for row in ROWS if kind == "queue" else []:
        channel.basic_publish("", "in", row.encode())
    source = "in" if kind == "queue" else log_of(tmp_path)
    before = records(cluster)
    hold.ask("branch prepared")
    job = submit(kind, source, 2)
    kill_worker_in_mid_batch(standalone, cluster, hold)
    hold.ask("one committed")
    hold.held(PATIENCE)
    kill_session(job)
    assert submit(kind, source, 3).wait(PATIENCE) == 0, said.read_text()[-3000:]
    assert sorted(drained(channel, queue)) == ROWS
    assert in_doubt(cluster) == []
    assert len(set(records(cluster)) - set(before)) == 1
    channel.queue_delete("in")


def test_a_worker_is_killed_in_a_batch_job(
    standalone: StandaloneCluster,
    cluster: LocalCluster,
    channel: BlockingChannel,
    queue: str,
    submit: Submit,
    hold: Hold,
    said: Path,
) -> None:
    before = records(cluster)
    hold.ask("branch prepared")
    job = submit("rows", str(len(ROWS)), 2)
    kill_worker_in_mid_batch(standalone, cluster, hold)
    assert job.wait(PATIENCE) == 0, said.read_text()[-3000:]
    assert sorted(drained(channel, queue)) == ROWS
    assert in_doubt(cluster) == []
    assert records(cluster) == before, "a batch job leaves none"
