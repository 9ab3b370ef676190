"""Kills at every step of a batch, and what must hold behind each: every message that went in comes out once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import pika
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.crash_table import Broken
from python_tests.harness.waiting import wait_until
from python_tests.suites.spark_queues.hold import Hold
from python_tests.suites.spark_queues.job import PER_BATCH
from recovery.dtx.errors import RolledBack
from recovery.dtx.lost import LOST
from recovery.dtx.with_pika import DtxConnection, TxConnection
from recovery.pipeline.queues.names import Batch, batch_of
from recovery.pipeline.queues.steps import STEPS

PROCESS, DRIVER, ASLEEP, PRIMARY, CLUSTER = "the process", "the driver", "all but the process", "primary", "all brokers"
VICTIMS = {
    PROCESS: "the Python process that is at the step: a worker, or Spark's for source or commit",
    DRIVER: "driver, JVM and workers, all of them",
    ASLEEP: "the same without the process, which wakes up when the next driver works",
    PRIMARY: "the primary of the brokers",
    CLUSTER: "all three nodes at once",
}
IN, OUT = "in", "out"
WENT_ON, AGAIN = "goes on", "starts again"
PATIENCE = 240.0
SETTINGS = ("--set", "timing.lease_ttl=2", "--set", "timing.prepare_timeout=20")


class Case(NamedTuple):
    """Kill ``victim`` when a process has come to ``step``."""

    victim: str
    step: str

    def __str__(self) -> str:
        return f"{self.victim}: {self.step}"


def all_cases() -> list[Case]:
    """Every victim at every step."""
    return [Case(victim, step) for victim in VICTIMS for step in STEPS]


class Site:
    """A context manager: a cluster, and a job that carries messages from queue to queue."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cluster = LocalCluster(directory / "cluster", 3, *SETTINGS)
        self._job: subprocess.Popen[bytes] | None = None
        self._said = directory / "job.out"
        self._hold = Hold(directory / "hold")
        self._cases = 0
        self._expected: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._stack = ExitStack()
        self._sleepers: list[int] = []

    def __enter__(self) -> Self:
        self._stack.enter_context(self._cluster)
        self._stack.callback(self._kill_job)
        with self._channel() as channel:
            for name in (IN, OUT):
                channel.queue_declare(name, durable=True)
        self._start_job()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # -- one case

    def run(self, case: Case) -> str:
        """Hold, kill, mend, and wait until everything is out; how the query went on. Raises Broken."""
        self._cases += 1
        self._hold.ask(case.step)
        self._send(2 * PER_BATCH)
        held = self._held(case)
        starts = self._starts()
        self._deed(case.victim, held)
        self._wait_for_all(case)
        wait_until(self._cluster.all_ready, 60, "all nodes ready", every=0.1)
        return AGAIN if case.victim in (DRIVER, ASLEEP) or self._starts() > starts else WENT_ON

    def _held(self, case: Case) -> int:
        assert self._job is not None
        try:
            return self._hold.held(PATIENCE, self._job)
        except TimeoutError:
            raise Broken(f"{case}: no process came to that step: {self._said.read_text()[-1000:]}") from None

    def _deed(self, victim: str, held: int) -> None:
        if victim == PROCESS:
            os.kill(held, signal.SIGKILL)
        elif victim in (DRIVER, ASLEEP):
            self._kill_job(spare=held if victim == ASLEEP else None)
            starts = self._starts()
            self._start_job()
            if victim == ASLEEP:
                wait_until(lambda: self._starts() > starts, PATIENCE, "the next driver", every=0.05)
                time.sleep(1)
                self._hold.let_go()
        else:
            primary = self._cluster.primary()
            assert primary is not None, "all nodes were well"
            names = [primary] if victim == PRIMARY else [f"node-{number}" for number in (1, 2, 3)]
            for pid in [self._cluster.pid(name) for name in names]:
                os.kill(pid, signal.SIGKILL)
            self._hold.let_go()
            for name in names:
                self._cluster.start_node(name)

    # -- the job

    def _start_job(self) -> None:
        urls, checkpoint = ",".join(self._cluster.urls), str(self._directory / "checkpoint")
        words = [sys.executable, "-m", "python_tests.suites.spark_queues.job", urls, IN, OUT, checkpoint]
        environment = {**os.environ, "TXHA_SPARK_HOLD": str(self._hold.directory), "SPARK_LOCAL_IP": "127.0.0.1"}
        with self._said.open("ab") as said, (self._directory / "job.err").open("ab") as errors:
            self._job = subprocess.Popen(
                [*words, str(2 + self._cases % 2)], stdout=said, stderr=errors, env=environment, start_new_session=True
            )

    def _starts(self) -> int:
        return self._said.read_text().count("started with")

    def _kill_job(self, spare: int | None = None) -> None:
        """SIGKILL of every process that the job has started, and of itself, each by its number."""
        if self._job is None:
            return
        if spare is None:
            while self._sleepers:
                _kill(self._sleepers.pop())
        else:
            self._sleepers.append(spare)
        kill_session(self._job, spare)
        self._job = None

    # -- messages

    @contextlib.contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        with DtxConnection(*self._cluster.urls) as any_node:  # which finds a primary, whichever node that is
            channel = any_node.connection.channel()
            yield channel

    def _send(self, count: int) -> None:
        with self._channel() as channel:
            channel.confirm_delivery()
            for number in range(count):
                body = f"{self._cases}.{number}"
                channel.basic_publish("", IN, body.encode(), pika.BasicProperties(delivery_mode=2, message_id=body))
                self._expected[body] += 1

    def _wait_for_all(self, case: Case) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            self._drain()
            if wrong := self._seen - self._expected:
                raise Broken(f"{case}: too often came {dict(wrong)}")
            missing = self._expected - self._seen
            if not missing:
                return
            if time.monotonic() > deadline:
                raise Broken(f"{case}: missing are {sorted(missing)}: {self._said.read_text()[-1000:]}")
            time.sleep(0.2)

    def _drain(self) -> None:
        """Take everything out, and count what has gone for certain: the brokers may be in the middle of a take-over."""
        with TxConnection(*self._cluster.urls) as broker, contextlib.suppress(RolledBack, *LOST):
            taken = []
            while (got := broker.channel.basic_get(OUT))[0] is not None:
                taken.append(got[2].decode())
                broker.channel.basic_ack(got[0].delivery_tag)
            broker.commit()
            self._seen.update(taken)

    def check_the_rest(self) -> None:
        """Two more batches, and nothing is left behind. Raises Broken."""
        self._cases += 1
        self._send(2 * PER_BATCH)
        self._wait_for_all(Case("none", "in the end"))
        wait_until(lambda: not self._in_doubt(), 30, "nothing in doubt", every=0.2)
        self._kill_job()
        self._drain()
        if self._seen != self._expected:
            raise Broken(f"in the end came {dict(self._seen - self._expected)} too often")
        queues = {name: state["messages"] for name, state in self._cluster.status()[0]["queues"].items()}
        records = [count for name, count in queues.items() if name.startswith("txha.spark.")]  # of query and source
        if records != [1, 1] or queues[IN] > 2 * PER_BATCH:
            raise Broken(f"left behind: {queues}")

    def _in_doubt(self) -> list[Batch]:
        with DtxConnection(*self._cluster.urls) as broker:
            return [batch for xid in broker.tpc_recover() if (batch := batch_of(xid)) is not None]


def kill_session(job: subprocess.Popen[bytes], spare: int | None = None) -> None:
    """SIGKILL of a process that leads a session, and of all others in it but ``spare``, each by its number."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(path.name)) == job.pid and int(path.name) != spare:
                os.kill(int(path.name), signal.SIGKILL)
    job.wait()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
