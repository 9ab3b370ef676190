"""A streaming query without Spark: the calls that Spark's engine makes, in its order, with a checkpoint like its own.

So a driver starts in milliseconds, and can be stopped between any two calls. The order is that of MicroBatchExecution:
an offset is logged before its batch, the batch before is settled behind that, and a batch is logged as committed behind
the sink's commit. A start writes a batch again whose offset is logged and that is not committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from python_tests.suites.spark_queues.drawn.points import FAILED, RAN, Points
from recovery.pipeline.queues import queue_intake
from recovery.pipeline.queues.names import Batch
from recovery.pipeline.queues.options import QueueSourceOptions, SinkOptions
from recovery.pipeline.queues.sink import StreamSink, Written, write
from recovery.pipeline.queues.source import QueueReader

ATTEMPTS = 3
"""Of a task."""


class Job(NamedTuple):
    """What a driver is started with. ``astray``: the body of a row that goes to the queue ``elsewhere``.

    ``tolerant``: failOnDataLoss is false, and newRecord true. ``prefetch``: how many messages may be at the source
    unsettled; None for as many as the protocol lets a consumer have.
    """

    urls: str
    query: str
    source: str
    target: str
    elsewhere: str
    astray: str | None
    checkpoint: Path
    per_batch: int
    partitions: int
    doubled: bool
    patience: float
    tolerant: bool
    prefetch: int | None = None


class FasterDriver(Exception):
    """Two drivers have one checkpoint, and this one was slower."""


class Checkpoint:
    """Which offsets were planned, and which batches were committed. A file is there whole, or not.

    It is never written again: as Spark's, a query that finds that another one has been faster ends.
    """

    def __init__(self, directory: Path, query: str) -> None:
        self._directory = directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FasterDriver):
            self._write(directory / "metadata", {"id": query})

    def plan(self, batch: int, offset: dict[str, Any]) -> None:
        """The offset with which a batch ends."""
        self._write(self._directory / "offsets" / str(batch), offset)

    def commit(self, batch: int) -> None:
        """A batch is written."""
        self._write(self._directory / "commits" / str(batch), {})

    def offset(self, batch: int) -> dict[str, Any]:
        """Of a batch that was planned."""
        found: dict[str, Any] = json.loads((self._directory / "offsets" / str(batch)).read_bytes())
        return found

    def planned(self) -> int:
        """The last batch that was; -1 for none."""
        return self._last("offsets")

    def committed(self) -> int:
        """The same."""
        return self._last("commits")

    def _last(self, name: str) -> int:
        return max((int(each.name) for each in (self._directory / name).glob("[0-9]*")), default=-1)

    def _write(self, path: Path, what: dict[str, Any]) -> None:
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(json.dumps(what))
        try:
            os.link(new, path)
        except FileExistsError:
            raise FasterDriver(f"another driver has written {path.parent.name}/{path.name}") from None
        finally:
            new.unlink()


class Query:
    """One start of it, until the queue is dry."""

    def __init__(self, job: Job, points: Points) -> None:
        self._job = job
        self._points = points
        self._checkpoint = Checkpoint(job.checkpoint, job.query)
        options = {"url": job.urls, "patience": job.patience, "checkpointLocation": str(job.checkpoint)}
        source = {"queue": job.source, "maxMessagesPerBatch": job.per_batch, "partitions": job.partitions}
        source["failOnDataLoss"] = not job.tolerant
        self._reader = QueueReader(QueueSourceOptions.model_validate({**options, **source}))
        self._sink_options = SinkOptions.model_validate({**options, "queue": job.target, "newRecord": job.tolerant})
        self._sink = StreamSink(self._sink_options)

    def run(self) -> int:
        """How many batches that were. Raises whatever ends a query."""
        try:
            self._reader.prepareForTriggerAvailableNow()
            return self._batches()
        finally:
            self._reader.stop()

    def _batches(self) -> int:
        checkpoint, reader = self._checkpoint, self._reader
        done = checkpoint.committed()
        at = reader.initialOffset() if done < 0 else checkpoint.offset(done)
        number = done + 1
        if checkpoint.planned() > done:
            self._batch(number, at, checkpoint.offset(number))
            at, number = checkpoint.offset(number), number + 1
        while (end := reader.latestOffset(at, ReadMaxRows(self._job.per_batch))) != at:
            checkpoint.plan(number, end)
            self._points.at("offset logged")
            if number > 0:
                reader.commit(at)
            self._batch(number, at, end)
            at, number = end, number + 1
        return number - done - 1

    def _batch(self, number: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        parts = self._reader.partitions(start, end)
        self._points.at("batch read")
        batch = Batch(self._job.query, number)
        messages: list[Written] = []
        try:
            written = [self._task(part, batch, index) for index, part in enumerate(parts)]
            messages = written  # of tasks, Spark tells none if one has failed
            self._sink.commit(messages, number)
        except Exception:
            self._sink.abort(messages, number)
            raise
        self._checkpoint.commit(number)
        self._points.at("commit logged")

    def _task(self, part: InputPartition, batch: Batch, index: int) -> Written:
        """As often as Spark tries."""
        if self._job.doubled:
            write(self._rows(part), batch, index, ATTEMPTS, self._sink_options)
        for attempt in range(ATTEMPTS - 1):
            try:
                return write(self._rows(part), batch, index, attempt, self._sink_options)
            except Exception:
                continue
        return write(self._rows(part), batch, index, ATTEMPTS - 1, self._sink_options)

    def _rows(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in self._reader.read(part):
            bodies = rows.column("body").to_pylist()
            keys = [self._job.elsewhere if self._job.astray == each.decode() else self._job.target for each in bodies]
            yield pa.record_batch({"body": pa.array(bodies, pa.binary()), "routing_key": keys})


def _end_with(failed: threading.ExceptHookArgs) -> None:
    """A thread of the driver that dies is a fault of the product."""
    sys.__excepthook__(failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
    os._exit(1)


def drive(job: Job, told: Connection) -> None:
    """In a process of its own, which is killed in the end: start after start, each told how it ended."""
    threading.excepthook = _end_with
    if job.prefetch is not None:
        queue_intake.HIGHEST_PREFETCH = job.prefetch
    points = Points(told)
    points.install()
    while True:
        try:
            ran = Query(job, points).run()
        except Exception as error:
            points.tell(FAILED, f"{type(error).__name__}: {error}")
        else:
            points.tell(RAN, ran)
