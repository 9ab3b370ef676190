"""The source: beside Parquet of the same rows, growing, and how long it takes to begin."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from python_tests.benchmarks.curves import write_curves
from python_tests.benchmarks.spark_logs import MESSAGES, write_log
from python_tests.benchmarks.spark_part import Part
from python_tests.harness.memory import anonymous_bytes
from recovery.pipeline.archive.files import write_rows
from recovery.pipeline.node import END, rows_of
from recovery.pipeline.schema import ARROW
from recovery.pipeline.session import spark_session
from recovery.reader.node_log import NodeLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAP = "2g"
ROUNDS = 3
BODIES = {64: 5_000_000, 1024: 1_000_000}
"""How many events with bodies of so many bytes."""
QUICK_EVENTS = 200_000
READY_PARTITIONS = 8
SIZES, QUICK_SIZES = (500_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000), (100_000, 400_000)
WATCH_SECONDS = 0.25


class Ready(DataSource):
    """Yields one batch of rows again and again: what a source in Python can give at all, since it makes nothing."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return from_arrow_schema(ARROW)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(Path(self.options["path"]), int(self.options["rows"]))


class ReadyReader(DataSourceReader):
    """As many rows as are asked for, in even partitions."""

    def __init__(self, directory: Path, rows: int) -> None:
        self._directory = directory
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(READY_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = next(rows_of(NodeLog(self._directory), "node-1", 1, END))
        return itertools.repeat(batch, self._rows // READY_PARTITIONS // batch.num_rows)


@contextmanager
def session() -> Iterator[SparkSession]:
    """With a heap that must be enough."""
    spark = spark_session("txha bench", settings={"spark.driver.memory": HEAP})
    try:
        yield spark
    finally:
        spark.stop()


def timed(work: Callable[[], Any]) -> float:
    """Seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def drained(frame: DataFrame) -> Callable[[], None]:
    """Every column of every row is read, and nothing is done with it."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def measure_source(quick: bool, place: Path) -> dict[str, Any]:
    """The same for bodies of several sizes, by the size."""
    return {
        "sizes": {
            str(body): _beside_parquet(place / str(body), QUICK_EVENTS if quick else events, body)
            for body, events in BODIES.items()
        }
    }


def _beside_parquet(place: Path, events: int, body: int) -> dict[str, Any]:
    """Rows a second of the source and of Parquet, in turn; and of one process without Spark."""
    write_log(place / "node", events, body=body)
    log = NodeLog(place / "node")
    alone = timed(lambda: [None for _ in rows_of(log, "node-1", 1, END)])
    entries = write_rows(place / "parquet", rows_of(log, "node-1", 1, END))
    rows = sum(entry.rows for entry in entries)
    with session() as spark:
        spark.dataSource.register(Ready)
        few = spark.read.format("txha").option("columns", "kind,transaction,queue,time")
        frames = {
            "txha": spark.read.format("txha").load(str(place / "node")),
            "few": few.load(str(place / "node")),
            "ready": spark.read.format("ready").option("rows", rows).load(str(place / "node")),
            "parquet": spark.read.parquet(str(place / "parquet" / "data")),
        }
        found: dict[str, list[float]] = {name: [] for name in frames}
        cpu: dict[str, list[float]] = {name: [] for name in frames}
        for number in range(ROUNDS + 1):
            for name, frame in frames.items():
                before = cpu_seconds()
                seconds = timed(drained(frame))
                used = (cpu_seconds() - before) * 1e6 / rows
                told = f"{rows / seconds:10,.0f} rows/s  {used:5.1f} CPU s for a million"
                print(f"source  bodies of {body:4}  round {number}  {name:8} {told}", flush=True)
                if number:  # the first one warms up
                    found[name].append(rows / seconds)
                    cpu[name].append(used)
    return {
        "rows": rows,
        "alone": rows / alone,
        **{name: statistics.median(each) for name, each in found.items()},
        **{f"{name} cpu": statistics.median(each) for name, each in cpu.items()},
    }


def show_source(found: dict[str, Any], out: Path) -> list[str]:
    """The section of the page."""
    told = {
        "txha": "`txha`, the log",
        "few": "`txha`, four of the columns",
        "ready": "rows that are ready, through a source in Python",
        "parquet": "Parquet of the same rows",
    }
    lines = [
        "## The source beside Parquet",
        "",
        f"All columns are read and dropped (`noop`), {MESSAGES} messages in a transaction, medians of {ROUNDS} rounds.",
        "A source in Python that makes nothing, but gives one batch again and again, shows what Spark itself",
        "costs.",
    ]
    for body, each in found["sizes"].items():
        lines += [
            "",
            f"| bodies of {body} bytes, {each['rows']:,} rows | rows/s | of Parquet | CPU s for a million rows |",
            "|---|---|---|---|",
            *(
                f"| {text} | {each[name]:,.0f} | {each[name] / each['parquet']:.2f} | {each[f'{name} cpu']:.1f} |"
                for name, text in told.items()
            ),
            f"| one process without Spark, from the log to Arrow | {each['alone']:,.0f} | | |",
        ]
    return lines


class Memory(threading.Thread):
    """The most memory that this process's children and theirs had for themselves at once: Java and Python workers."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.highest = 0
        self._ended = threading.Event()

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Look, until it is over."""
        while not self._ended.wait(WATCH_SECONDS):
            self.highest = max(self.highest, sum(_own(pid) for pid in _below("self")))


def cpu_seconds() -> float:
    """What this process's children and theirs, Java and the Python workers, have taken of the processors so far."""
    ticks = 0
    for pid in _below("self"):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _below(pid: str) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += path.read_text().split()
        except OSError:
            continue
    return found + [below for child in found for below in _below(child)]


def _own(pid: str) -> int:
    try:
        return anonymous_bytes(int(pid))
    except OSError:
        return 0


def measure_growth(quick: bool, place: Path) -> dict[str, Any]:
    """A count by kind and queue over logs of several sizes, and the memory for it."""
    points = []
    with session() as spark:
        for size in QUICK_SIZES if quick else SIZES:
            events = write_log(place / "node", size)
            frame = spark.read.format("txha").load(str(place / "node")).groupBy("kind", "queue").count()
            with Memory() as memory:
                seconds = timed(frame.collect)
            shutil.rmtree(place / "node")
            points.append({"events": events, "seconds": seconds, "MiB": memory.highest / 2**20})
            print(f"growth  {events:>11,} events  {seconds:7.1f} s  {memory.highest / 2**20:6,.0f} MiB", flush=True)
    return {"points": points}


def show_growth(found: dict[str, Any], out: Path) -> list[str]:
    """The section of the page, and its plot."""
    points = found["points"]
    write_curves(
        out / "spark-growth.svg",
        "a count by kind and queue",
        "million events",
        "seconds",
        {"seconds": [(point["events"] / 1e6, point["seconds"]) for point in points]},
    )
    return [
        "## Growth",
        "",
        f"The query counts by kind and queue over the log of one node, with a heap of {HEAP}. Memory is that of",
        "Java and all Python workers together, at its highest.",
        "",
        "![growth](spark-growth.svg)",
        "",
        "| events | seconds | events/s | MiB |",
        "|---|---|---|---|",
        *(
            f"| {p['events']:,} | {p['seconds']:.1f} | {p['events'] / p['seconds']:,.0f} | {p['MiB']:,.0f} |"
            for p in points
        ),
    ]


_FRESH = """
import json, sys, time
began = time.perf_counter()
from recovery.pipeline.schema import ARROW
from recovery.pipeline.session import spark_session
spark = spark_session()
started = time.perf_counter()
frame = spark.read.format("txha").load(sys.argv[1])
frame.count()
first = time.perf_counter()
frame.count()
print(json.dumps([started - began, first - started, time.perf_counter() - first]))
"""


def measure_start(quick: bool, place: Path) -> dict[str, Any]:
    """A fresh process: the session, the first query over a thousand events, the second."""
    write_log(place / "node", 1000)
    found = []
    for _ in range(1 if quick else ROUNDS):
        command = [sys.executable, "-c", _FRESH, str(place / "node")]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.append(json.loads(said.splitlines()[-1]))
    session_, first, second = (statistics.median(each) for each in zip(*found, strict=True))
    print(f"start  session {session_:.1f} s  first query {first:.1f} s  second {second:.1f} s", flush=True)
    return {"session": session_, "first": first, "second": second}


def show_start(found: dict[str, Any], out: Path) -> list[str]:
    """The section of the page."""
    return [
        "## Start of a session",
        "",
        "A fresh process reads a log of a thousand events; the table gives seconds.",
        "",
        "| session | first query | second query |",
        "|---|---|---|",
        f"| {found['session']:.1f} | {found['first']:.1f} | {found['second']:.1f} |",
    ]


SOURCE = Part(measure_source, show_source)
GROWTH = Part(measure_growth, show_growth)
START = Part(measure_start, show_start)
