"""A case by Spark itself: the query of ``spark_queues.job``, held at its steps and killed by its pid."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

from python_tests.harness.crash_table import Broken
from python_tests.harness.waiting import wait_until
from python_tests.suites.spark_queues.crashes import kill_session
from python_tests.suites.spark_queues.drawn import case as of
from python_tests.suites.spark_queues.drawn.brokers import Brokers, length
from python_tests.suites.spark_queues.drawn.case import Case, Step
from python_tests.suites.spark_queues.drawn.counting import Names, check, delete, in_doubt
from python_tests.suites.spark_queues.drawn.refusals import refusal
from python_tests.suites.spark_queues.drawn.run import NOTHING, PATIENCE, Done, Found
from python_tests.suites.spark_queues.hold import Hold
from python_tests.suites.spark_queues.job import PER_BATCH


class RealRun:
    """As ``run.Run``, for a case that is ``real``. Rows come before each step, whatever the case says of them."""

    def __init__(self, case: Case, brokers: Brokers, directory: Path) -> None:
        self._case = case
        self._brokers = brokers
        self._directory = directory / f"spark-{case.seed}"
        self._checkpoint = self._directory / "checkpoint"
        self._hold = Hold(self._directory / "hold")
        self._said = self._directory / "job.out"
        self._said.touch()
        run = uuid.uuid4().hex
        self._queues = f"in-{run}", f"out-{run}", f"elsewhere-{run}"
        self._job: subprocess.Popen[bytes] | None = None
        self._bodies: list[str] = []
        self._done: list[Done] = []
        self._causes: set[str] = set()
        self._drivers = 0

    def run(self) -> Found:
        """Raises Broken, with what the query said last."""
        for queue in self._queues[:2]:
            self._brokers.client.insist(lambda channel, queue=queue: channel.queue_declare(queue, durable=True))  # type: ignore[misc]
        try:
            self._start_job()
            for step in self._case.steps:
                self._do(step)
            self._brokers.settled_down()
            names = self._come_to_the_end()
            check(self._brokers, names, self._bodies, None)
        except Exception as broken:
            done = "; ".join(map(str, self._done))
            raise Broken(f"{broken}\n  done: {done}\n  {self._said.read_text()[-3000:]}") from broken
        finally:
            self._kill_job()
        delete(self._brokers, names)
        return Found(tuple(self._done), self._refused(), self._drivers, 0, len(self._bodies))

    def _publish(self) -> None:
        bodies = [f"row-{len(self._bodies) + number}" for number in range(2 * PER_BATCH)]
        self._bodies += bodies
        self._brokers.client.publish(self._queues[0], bodies)

    # -- the query

    def _start_job(self) -> None:
        words = [",".join(self._brokers.urls), *self._queues[:2], str(self._checkpoint)]
        partitions = self._case.partitions[self._drivers % len(self._case.partitions)]
        environment = {**os.environ, "TXHA_SPARK_HOLD": str(self._hold.directory), "SPARK_LOCAL_IP": "127.0.0.1"}
        with self._said.open("ab") as said, (self._directory / "job.err").open("ab") as errors:
            self._job = subprocess.Popen(
                [sys.executable, "-m", "python_tests.suites.spark_queues.job", *words, str(partitions)],
                stdout=said,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        self._drivers += 1

    def _kill_job(self) -> None:
        if self._job is not None:
            kill_session(self._job)
            self._job = None

    def _do(self, step: Step) -> None:
        for passed in range(step.passes + 1):
            self._hold.ask(step.point)
            self._publish()
            assert self._job is not None
            self._hold.held(PATIENCE, self._job)
            if passed < step.passes:
                self._hold.let_go()
        for deed in step.deeds:
            self._causes.add(deed)
            how = ""
            if deed == of.KILL_DRIVER:
                self._kill_job()
                self._start_job()
            elif not {
                of.KILL_PRIMARY: self._brokers.kill_primary,
                of.KILL_BROKERS: self._brokers.kill_all,
                of.TAKE_OVER: self._brokers.promote,
            }[deed]():
                how = NOTHING
            self._done.append(Done(deed, step.point, how))
        self._hold.let_go()

    # -- the end

    def _come_to_the_end(self) -> Names:
        """The messages of the last batch stay until the next start: an engine that calls what Spark calls does that."""
        wait_until(lambda: self._carried() >= len(self._bodies), PATIENCE, "every row", every=0.2)
        names = Names(json.loads((self._checkpoint / "metadata").read_bytes())["id"], *self._queues)
        wait_until(lambda: not in_doubt(self._brokers, names.query), PATIENCE, "nothing in doubt", every=0.2)
        planned = max(int(each.name) for each in (self._checkpoint / "offsets").glob("[0-9]*"))
        wait_until((self._checkpoint / "commits" / str(planned)).exists, PATIENCE, "the last batch", every=0.2)
        self._kill_job()
        self._settle_the_last(planned, names)
        return names

    def _carried(self) -> int:
        return self._brokers.client.insist(lambda channel: length(channel, self._queues[1])) or 0

    def _settle_the_last(self, planned: int, names: Names) -> None:
        from pyspark.sql.streaming.datasource import ReadMaxRows

        from recovery.pipeline.queues.options import QueueSourceOptions
        from recovery.pipeline.queues.source import QueueReader

        offset = json.loads((self._checkpoint / "offsets" / str(planned)).read_text().splitlines()[-1])
        reader = QueueReader(QueueSourceOptions(url=",".join(self._brokers.urls), queue=names.source))
        try:
            reader.prepareForTriggerAvailableNow()
            if reader.latestOffset(offset, ReadMaxRows(PER_BATCH)) != offset:
                raise Broken("messages are left that are in no batch")
        finally:
            reader.stop()

    def _refused(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for said in re.findall(r"^failed: (.*)$", self._said.read_text(), re.MULTILINE):
            name = refusal(said, self._causes)
            if name is None:
                raise Broken(f"the query refused, and nothing promises that: {said}")
            found[name] += 1
        return dict(found)
