"""Queues on a standalone cluster of Spark: two workers, of which one is killed in mid-batch, and a driver that is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from python_tests.suites.spark_queues.crashes import kill_session
from python_tests.suites.spark_queues.hold import Hold
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.names import Batch, batch_of
from tests.recovery.pipeline.events import apply_up_to, message, write_node
from tests.recovery.pipeline.queues.conftest import drained
from tests.recovery.pipeline.standalone import StandaloneCluster
from txobserver.events import Configure, GenerationStart, Publish

JOB = Path(__file__).with_name("submitted.py")
ROWS = sorted(str(number) for number in range(50))
PATIENCE = 240.0

pytestmark = [pytest.mark.standalone, pytest.mark.timeout(900)]


class Trial:
    """One query or batch job, started as often as a test likes; and what it leaves at the broker."""

    def __init__(self, standalone: StandaloneCluster, code: Path, cluster: LocalCluster, place: Path) -> None:
        self.hold = Hold(place / "hold")
        self.inlet, self.outlet = (f"{name}-{place.name}" for name in ("in", "out"))
        self._standalone = standalone
        self._code = code
        self._cluster = cluster
        self._place = place
        self._said = place / "said"
        self._jobs: list[subprocess.Popen[bytes]] = []
        with self._channel() as channel:
            for queue in (self.inlet, self.outlet):
                channel.queue_declare(queue, durable=True)
        self._before = self._records()

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        """Of a connection of its own each time: heartbeats are not sent while a test waits."""
        with closing(pika.BlockingConnection(pika.URLParameters(self._cluster.urls[0]))) as connection:
            yield connection.channel()

    def fill(self) -> None:
        """Publish the rows to the inlet."""
        with self._channel() as channel:
            channel.confirm_delivery()
            for row in ROWS:
                channel.basic_publish("", self.inlet, row.encode())

    def start(self, kind: str, source: str, partitions: int) -> subprocess.Popen[bytes]:
        """As ``submitted`` has them."""
        urls, checkpoint = ",".join(self._cluster.urls), str(self._place / "checkpoint")
        words = [kind, urls, self.outlet, source, checkpoint, str(partitions)]
        job = self._standalone.submit(JOB, words, self._code, self._said, self.hold.directory)
        self._jobs.append(job)
        return job

    def kill_a_worker(self, job: subprocess.Popen[bytes]) -> None:
        """When both, each with one processor, have prepared a branch, and one of them cannot tell of it any more."""
        held = self.hold.held(PATIENCE, job)
        wait_until(lambda: len(self._in_doubt()) == 2, PATIENCE, "the other worker's branch")
        self._standalone.replace_worker_of(held)
        self.hold.let_go()

    def check(self, job: subprocess.Popen[bytes], records: int) -> None:
        """Each row is there once, nothing is in doubt, and so many records are left."""
        assert job.wait(PATIENCE) == 0, self._said.read_text()[-3000:]
        with self._channel() as channel:
            assert sorted(drained(channel, self.outlet)) == ROWS
        assert self._in_doubt() == []
        assert len(self._records() - self._before) == records

    def end(self) -> None:
        """Kill what is left of the jobs, and remove the queues."""
        for job in self._jobs:
            kill_session(job)
        with self._channel() as channel:
            for queue in (self.inlet, self.outlet, *(self._records() - self._before)):
                channel.queue_delete(queue)

    def _in_doubt(self) -> list[Batch]:
        with DtxConnection(*self._cluster.urls) as broker:
            return [batch for xid in broker.tpc_recover() if (batch := batch_of(xid)) is not None]

    def _records(self) -> set[str]:
        return {name for name in self._cluster.status()[0]["queues"] if name.startswith("txha.spark.")}


@pytest.fixture
def trial(standalone: StandaloneCluster, code: Path, cluster: LocalCluster, tmp_path: Path) -> Iterator[Trial]:
    """With queues of its own."""
    running = Trial(standalone, code, cluster, tmp_path)
    yield running
    running.end()


def log_of(directory: Path) -> str:
    """The log of a node that is down, to which all rows were published."""
    frames = [[GenerationStart(1, "n1", ["n1/i"]), Configure(1, "queue.declare", "q", b"")]]
    frames += [[Publish(at, (1,), message(row))] for at, row in enumerate(ROWS, 1)]
    write_node(directory / "n1", frames)
    apply_up_to(directory / "n1", sum(map(len, frames)))
    return str(directory / "n1")


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_worker_and_then_the_driver_are_killed(trial: Trial, tmp_path: Path, kind: str) -> None:
    """The driver when the batch is decided and half committed; the next one makes other partitions."""
    if kind == "queue":
        trial.fill()
    source = trial.inlet if kind == "queue" else log_of(tmp_path)
    trial.hold.ask("branch prepared")
    job = trial.start(kind, source, 2)
    trial.kill_a_worker(job)
    trial.hold.ask("one committed")
    trial.hold.held(PATIENCE, job)
    kill_session(job)
    trial.check(trial.start(kind, source, 3), records=1)


def test_a_worker_is_killed_in_a_batch_job(trial: Trial) -> None:
    trial.hold.ask("branch prepared")
    job = trial.start("rows", str(len(ROWS)), 2)
    trial.kill_a_worker(job)
    trial.check(job, records=0)
