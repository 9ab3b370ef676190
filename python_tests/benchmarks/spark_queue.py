"""Queues on Spark beside a plain client: rows/s into a queue and out of one, and micro-batches/s.

The same rows each time, into one durable queue of three nodes, by one publisher and by the sink with two tasks. A
client that lost or doubled a row gives no figure: it ends the run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika

from python_tests.benchmarks.spark_part import Part
from python_tests.harness.cluster import LocalCluster
from recovery.pipeline.session import spark_session

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
    from pyspark.sql import SparkSession

BODY = 256
PER_TRANSACTION = 10_000
SMALL_BATCH = 100
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Bench:
    """One cluster, one session, one queue."""

    def __init__(self, cluster: LocalCluster, spark: SparkSession, place: Path, quick: bool) -> None:
        self._url = ",".join(cluster.urls)
        self._spark = spark
        self._place = place
        self._rows = 20_000 if quick else 200_000
        self._rounds = 1 if quick else 3
        self._seconds = 5 if quick else 30
        parameters = pika.URLParameters(cluster.urls[0])
        parameters.heartbeat = 0
        self._channel: BlockingChannel = pika.BlockingConnection(parameters).channel()
        self._channel.queue_declare("bench", durable=True)

    def figures(self) -> dict[str, Any]:
        """Rows/s and batches/s, each the median of the rounds."""
        self._job(self._rows // 100)  # the first one starts workers
        ways: dict[str, Callable[[], None]] = {
            "pika, one confirm for each row": lambda: self._publish(confirms=True),
            "pika, transactions of 10,000": lambda: self._publish(confirms=False),
            "sink, batch job with 2 partitions": lambda: self._job(self._rows),
        }
        found = {what: self._rows_per_second(way, self._rows_of(what)) for what, way in ways.items()}
        found["source, availableNow"] = self._rows_per_second(self._read, self._rows, full=True)
        return {"rows": self._rows, "body": BODY, "rows_per_second": found, **self._stream()}

    def _rows_of(self, what: str) -> int:
        return self._rows // 100 if "confirm" in what else self._rows

    def _rows_per_second(self, way: Callable[[], None], rows: int, full: bool = False) -> float:
        took = []
        for _ in range(self._rounds):
            self._channel.queue_purge("bench")
            if full:
                self._publish(confirms=False)
            began = time.monotonic()
            way()
            took.append(time.monotonic() - began)
            there = self._channel.queue_declare("bench", passive=True).method.message_count
            if not full and there != rows:
                raise RuntimeError(f"{there} rows are in the queue, not {rows}")
        return rows / statistics.median(took)

    def _publish(self, confirms: bool) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url.split(",")[0]))
        channel = connection.channel()
        if confirms:
            channel.confirm_delivery()
        else:
            channel.tx_select()
        for number in range(self._rows // 100 if confirms else self._rows):
            channel.basic_publish("", "bench", b"x" * BODY, PERSISTENT)
            if not confirms and number % PER_TRANSACTION == PER_TRANSACTION - 1:
                channel.tx_commit()
        if not confirms:
            channel.tx_commit()
        connection.close()

    def _job(self, rows: int) -> None:
        frame = self._spark.range(0, rows, 1, 2).selectExpr(f"repeat('x', {BODY}) as body")
        frame.write.format("txha-queue").mode("append").options(url=self._url, queue="bench").save()

    def _read(self) -> None:
        rows = self._spark.readStream.format("txha-queue").options(url=self._url, queue="bench").load()
        checkpoint = str(self._place / f"source-{time.monotonic_ns()}")
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        started = query.start()
        started.awaitTermination()
        read = sum(progress["numInputRows"] for progress in started.recentProgress)
        if read != self._rows:
            raise RuntimeError(f"{read} rows were read, not {self._rows}")

    def _stream(self) -> dict[str, Any]:
        """One small micro-batch after the other."""
        self._channel.queue_purge("bench")
        source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", SMALL_BATCH)
        rows = source.option("numPartitions", 2).load().selectExpr("cast(value as string) as body")
        sink = rows.writeStream.format("txha-queue").options(url=self._url, queue="bench")
        query = sink.option("checkpointLocation", str(self._place / "stream")).start()
        time.sleep(self._seconds)
        progress = list(query.recentProgress)
        query.stop()
        took = [each["durationMs"]["triggerExecution"] for each in progress[2:]]  # the first ones start processes
        return {"batches": len(took), "batch_rows": SMALL_BATCH, "batch_ms": statistics.median(took)}


def measure(quick: bool, place: Path) -> dict[str, Any]:
    """Figures as JSON can hold them; ``place`` is for what need not be kept. Raises RuntimeError if a row was lost."""
    spark = spark_session("bench: queues")
    try:
        with LocalCluster(place / "cluster", 3) as cluster:
            return Bench(cluster, spark, place, quick).figures()
    finally:
        spark.stop()


def show(figures: dict[str, Any], out: Path) -> list[str]:
    """The lines of the page."""
    lines = [
        "## Queues",
        "",
        f"{figures['rows']:,} rows with bodies of {figures['body']} bytes, one durable queue, three nodes; the",
        "load and the nodes are on the same processors. A client that lost or doubled a row gives no figure.",
        "",
        "| | rows/s |",
        "|---|---|",
    ]
    lines += [f"| {what} | {rate:,.0f} |" for what, rate in figures["rows_per_second"].items()]
    lines += [
        "",
        f"Small micro-batches, {figures['batch_rows']} rows in 2 partitions, one after the other: "
        f"{figures['batch_ms']:.0f} ms each, median of {figures['batches']}.",
    ]
    return lines


QUEUES = Part(measure, show)
