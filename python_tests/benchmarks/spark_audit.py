"""The audit: of logs that agree, of logs that differ here and there, and growing. A part of ``make bench-spark``."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from python_tests.benchmarks.curves import write_curves
from python_tests.benchmarks.spark_part import Part
from python_tests.harness.memory import MemoryWatch
from recovery.pipeline.audit.audit import audit
from recovery.pipeline.audit.inputs import read_rows
from recovery.pipeline.rows.builder import QueueNames, RowBuilder
from recovery.pipeline.rows.numbering import UNKNOWN
from recovery.pipeline.schema import ARROW
from recovery.pipeline.session import spark_session
from recovery.store.identity import FORMAT_VERSION, Identity, create_identity
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from txobserver.configuration import DECLARE_QUEUE
from txobserver.events import (
    Configure,
    Event,
    GenerationStart,
    Message,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
)
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Position, generated_id, offset_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES = ("node-1", "node-2", "node-3")
QUEUES = 8
MESSAGES = 10
BODY = 64
FAULTS = 30
"""Of each of two kinds"""
AT_ONCE = 256
"""Frames that are written and synced at once"""
HEAP = "2g"
EVENTS, QUICK_EVENTS = 5_000_000, 60_000
SIZES, QUICK_SIZES = (500_000, 2_000_000, 10_000_000, 20_000_000), (30_000, 120_000)


def frames_of(events: int, faulty: bool = False) -> Iterator[Frame]:
    """One log of about so many events. Each transaction puts ten messages into queues and takes those of an earlier
    one; a tenth are rolled back.

    ``faulty``: as a node would have it that holds another body, or lacks a decision's commit, now and then.
    """
    chance = random.Random(1)
    group: list[Event] = [GenerationStart(1, NODES[0], list(NODES))]
    group += [Configure(number + 1, DECLARE_QUEUE, f"queue-{number}", b"") for number in range(QUEUES)]
    first, time_ms, tx, waiting = 1, 1_767_225_600_000, 0, []
    every = max(2, events // 16 // FAULTS)
    while first + len(group) <= events:
        tx += 1
        number = generated_id(1, tx)
        messages = [(1 + at % QUEUES, generated_id(1, tx * MESSAGES + at)) for at in range(MESSAGES)]
        group.append(TxOpen(number))
        for queue, rid in messages:
            other = faulty and rid == messages[0][1] and tx % every == 0
            body = chance.randbytes(BODY)
            message = Message("", f"queue-{queue - 1}", b"\x10\x00\x02", b"another" if other else body)
            group.append(TxEnqueue(number, rid, (queue,), message))
        takes = waiting.pop(0) if len(waiting) > 100 else {}
        group += [TxDequeue(number, queue, entries, 1) for queue, entries in takes.items()]
        group.append(TxPrepare(number, MESSAGES + len(takes), list(NODES)))
        commit = tx % 10 != 0
        group.append(TxDecision(number, commit != (faulty and tx % every == 1)))
        if commit:
            decided = first + len(group) - 1
            entries: dict[int, list[tuple[int, int]]] = {}
            for at, (queue, rid) in enumerate(messages):
                entries.setdefault(queue, []).append((offset_of(decided, at), rid))
            waiting.append(entries)
        if len(group) >= 4 * MESSAGES:
            yield encode_frame(1, first, group, time_ms)
            first, time_ms, group = first + len(group), time_ms + 20, []


def write_logs(directory: Path, events: int) -> None:
    """``events`` in the logs of all nodes together; each node's directory."""
    for node in NODES:
        (directory / node / "log").mkdir(parents=True)
        create_identity(directory / node, Identity(FORMAT_VERSION, "bench", node, "1"))
        log = Log(directory / node / "log", partial(_segment, node), 64 << 20, Position(0, 0))
        gathered: list[Frame] = []
        for frame in frames_of(events // len(NODES)):
            gathered.append(frame)
            if len(gathered) == AT_ONCE:
                log.append(gathered)
                gathered = []
        log.append(gathered)
        log.close()


def _segment(node: str, first: int) -> SegmentInfo:
    return SegmentInfo("bench", node, "1", first, 0)


def write_parquet(path: Path, events: int, faults: bool = False) -> int:
    """The rows of the same logs in one directory, a file for each node; ``faults`` are the last one's. Returns how
    many rows."""
    path.mkdir(parents=True)
    rows = 0
    for node in NODES:
        builder = RowBuilder(node, QueueNames(), lambda tx: UNKNOWN)
        with pq.ParquetWriter(path / f"{node}.parquet", ARROW, compression="zstd") as writer:
            for frame in frames_of(events // len(NODES), faults and node == NODES[-1]):
                for batch in builder.add(frame):
                    writer.write_batch(batch)
                    rows += batch.num_rows
            for batch in builder.take():
                writer.write_batch(batch)
                rows += batch.num_rows
    return rows


def _audited(spark: SparkSession, path: Path) -> tuple[float, dict[str, int]]:
    """Seconds, and how many breaches of each name were found."""
    began = time.perf_counter()
    rows = read_rows(spark, [path])
    report = audit(rows.table, costly=rows.costly)
    return time.perf_counter() - began, report.found


def _java() -> int:
    """The process id of Spark's JVM, a child of this one."""
    children = [int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
    return next(pid for pid in children if "java" in Path(f"/proc/{pid}/comm").read_text())


def measure(quick: bool, place: Path) -> dict[str, Any]:
    """Seconds for logs that agree, from Parquet and from the logs themselves, and for logs that differ; then growth.

    Raises AssertionError if what was planted is not what is found: then there is no figure.
    """
    events = QUICK_EVENTS if quick else EVENTS
    found: dict[str, Any] = {"events": events, "rows": write_parquet(place / "clean", events), "growth": []}
    write_parquet(place / "faulty", events, faults=True)
    write_logs(place / "logs", events)
    spark = spark_session("txha bench", settings={"spark.driver.memory": HEAP})
    try:
        for name, path in (("first", "clean"), ("parquet", "clean"), ("faulty", "faulty"), ("logs", "logs")):
            found[name], breaches = _audited(spark, place / path)
            print(f"audit  {name:8} {found[name]:6.1f} s  {breaches}", flush=True)
            assert set(breaches) == ({"two-decisions", "differs"} if name == "faulty" else set()), breaches
            if breaches:
                found["breaches"] = sum(breaches.values())
        for path in ("clean", "faulty", "logs"):
            shutil.rmtree(place / path)
        for size in QUICK_SIZES if quick else SIZES:
            write_parquet(place / "size", size)
            with MemoryWatch([_java()]) as watch:
                seconds, breaches = _audited(spark, place / "size")
            assert not breaches, breaches
            found["growth"].append({"events": size, "seconds": seconds, "memory": watch.highest})
            print(f"audit  {size:10,} events {seconds:6.1f} s, {watch.highest >> 20:,} MiB", flush=True)
            shutil.rmtree(place / "size")
    finally:
        spark.stop()
    return found


def show(found: dict[str, Any], out: Path) -> list[str]:
    """The section of the page, and its plot."""
    growth = found["growth"]
    points = [(each["events"] / 1e6, each["seconds"]) for each in growth]
    write_curves(out / "spark-audit.svg", "txha audit", "million events of three logs", "seconds", {"audit": points})
    return [
        "## Audit",
        "",
        f"{found['events']:,} events of three logs, {found['rows']:,} rows; a tenth of the transactions",
        "is rolled back.",
        "",
        "| | seconds |",
        "|---|---|",
        f"| Parquet, logs that agree, the first job of a session | {found['first']:.1f} |",
        f"| the same again | {found['parquet']:.1f} |",
        f"| one log differs: {found['breaches']} breaches, each with its events | {found['faulty']:.1f} |",
        f"| from the logs themselves | {found['logs']:.1f} |",
        "",
        "![seconds by events](spark-audit.svg)",
        "",
        "| events | seconds | events/s | JVM, MiB |",
        "|---|---|---|---|",
        *[
            f"| {each['events']:,} | {each['seconds']:.1f} | {each['events'] / each['seconds']:,.0f} "
            f"| {each['memory'] >> 20:,} |"
            for each in growth
        ],
    ]


AUDIT = Part(measure, show)
