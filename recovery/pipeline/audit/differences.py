"""Nodes against each other: what stands at one position must be the same in every log that reaches so far (P1, P6, P7).

First each log is summed up: a count and two sums of marks, in any order, for each *bucket* of some thousand positions.
Only buckets whose sums differ are looked at position by position, and only what differs there is looked at row by row.
A fault costs what it touched, and logs that agree cost one pass.

Where logs differ, what most of them hold is taken for right, and of two equal halves that which holds the copy that is
read otherwise. An event that is missing is wrong wherever it is missing: no log has gaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recovery.pipeline.audit.facts import any_of, compared, within
from recovery.pipeline.audit.findings import breaches
from recovery.pipeline.audit.stream import Stream, Zone

BUCKETS = 4096
LEAST = 1024
PRINT = ("count(*) AS rows", "sum(shiftright(mark, 24)) AS total", "bit_xor(mark) AS mixed")
"""An order-insensitive fingerprint. The sum is of 40 bits each, so that it cannot overflow."""
HEAD = ("kind", "transaction", "commit", "queue", "queue_id", "globally")
"""What the rows of one event have in common; ``globally``: of a decision on a global transaction."""


class Bucket(NamedTuple):
    """Sequences ``first`` to ``last``, all within one zone, which ``nodes`` must hold."""

    first: int
    last: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """``suspects``: where logs differ. ``apart``: positions that differ, with what is right there; ``odd``: on
    which nodes it is not. Both are None when there is nothing."""

    suspects: list[Bucket]
    apart: DataFrame | None = None
    odd: DataFrame | None = None


def compare(facts: DataFrame, stream: Stream) -> Comparison:
    """What the logs hold differently, within what they can be held to."""
    width = max(LEAST, (stream.last - stream.first) // BUCKETS)
    suspects = _suspects(facts.filter(compared(stream.reaches)), stream.zones, width)
    if not suspects:
        return Comparison(suspects)
    rows = _rows_in(facts.filter(compared(stream.reaches)), suspects)
    rows = rows.withColumn("globally", F.expr("if(kind = 'decide-global', xid, NULL)"))
    events = rows.groupBy("position", "node").agg(
        F.expr(f"struct({', '.join(PRINT)})").alias("print"), *[F.min(each).alias(each) for each in HEAD]
    )
    events = events.withColumn("read", within(stream.parts)).localCheckpoint()
    votes = events.groupBy("position", "print").agg(
        F.count("*").alias("votes"),
        F.max("read").alias("read"),
        F.min("node").alias("node"),
        F.max("queue").alias("queue"),
    )
    right = votes.groupBy("position").agg(
        F.max_by(F.struct("print", "node", "votes", "queue"), F.struct("votes", "read")).alias("right")
    )
    holders = _holders(stream.zones)
    apart = right.filter(F.col("right.votes") < F.size(holders)).select(
        "position", "right.print", "right.node", "right.queue", holders.alias("holders")
    )
    apart = apart.localCheckpoint()
    return Comparison(suspects, apart, _odd(apart, events))


def _suspects(facts: DataFrame, zones: list[Zone], width: int) -> list[Bucket]:
    """Buckets whose sums are not the same on all nodes that must hold them, or in which an event is missing."""
    keyed = facts.withColumn("zone", _zone(zones)).withColumn("bucket", F.expr(f"position div {width}"))
    sums = keyed.groupBy("zone", "bucket", "node").agg(
        *[F.expr(each) for each in PRINT], F.expr("count_if(part = 0) AS events")
    )
    found: dict[tuple[int, int], dict[str, tuple[int, ...]]] = defaultdict(dict)
    for row in sums.collect():
        found[row["zone"], row["bucket"]][row["node"]] = (row["rows"], row["total"], row["mixed"], row["events"])
    suspects = []
    for number, zone in enumerate(zones):
        for bucket in range(zone.first // width, zone.last // width + 1):
            first, last = max(zone.first, bucket * width), min(zone.last, bucket * width + width - 1)
            prints = found[number, bucket]
            whole = all(each[3] == last - first + 1 for each in prints.values())
            if zone.nodes and (len(set(prints.values())) != 1 or len(prints) < len(zone.nodes) or not whole):
                suspects.append(Bucket(first, last, zone.nodes))
    return suspects


def _zone(zones: list[Zone]) -> Column:
    """The number of the zone that a position is in."""
    chain = F.lit(0)
    for number, zone in enumerate(zones):
        chain = F.when(F.col("position") >= zone.first, F.lit(number)).otherwise(chain) if number else chain
    return chain


def _holders(zones: list[Zone]) -> Column:
    """The nodes that must hold a position."""
    chain = F.array().cast("array<string>")
    for zone in zones:
        nodes = F.array(*[F.lit(node) for node in zone.nodes]).cast("array<string>")
        chain = F.when(F.col("position").between(zone.first, zone.last), nodes).otherwise(chain)
    return chain


def _rows_in(facts: DataFrame, buckets: list[Bucket]) -> DataFrame:
    """The rows of these, neighbours taken together."""
    ranges: list[list[int]] = []
    for bucket in buckets:
        if ranges and ranges[-1][1] + 1 == bucket.first:
            ranges[-1][1] = bucket.last
        else:
            ranges.append([bucket.first, bucket.last])
    overall = F.col("position").between(ranges[0][0], ranges[-1][1])
    if len(ranges) <= 64:
        return facts.filter(overall & any_of(F.col("position").between(*each) for each in ranges))
    wanted = F.broadcast(_table(facts.sparkSession, ranges))
    return facts.filter(overall).join(wanted, F.expr("position BETWEEN begin AND end")).drop("begin", "end")


def _table(session: SparkSession, ranges: Sequence[Sequence[int]]) -> DataFrame:
    """Ranges of positions, from ``begin`` to ``end``."""
    begins, ends = zip(*ranges, strict=True)
    return session.createDataFrame(pa.table({"begin": pa.array(begins, pa.int64()), "end": pa.array(ends, pa.int64())}))


def _odd(apart: DataFrame, events: DataFrame) -> DataFrame:
    """A row for each node and position where it does not hold what is right: the right event, and its own or none."""
    right = events.select(
        "position", F.col("node").alias("right_node"), "print.rows", *[name for name in HEAD if name != "queue"]
    )
    own = events.select(
        "position", "node", F.col("print").alias("own_print"), F.col("print.rows").alias("own_rows"),
        *[F.col(name).alias(f"own_{name}") for name in HEAD],
    )  # fmt: skip
    # a log that begins behind the declaration of a queue may not know its name
    names = {
        "queue": "if(own_queue_id = queue_id, coalesce(queue, own_queue), queue)",
        "own_queue": "if(own_queue_id = queue_id, coalesce(own_queue, queue), own_queue)",
    }
    wanted = apart.select(
        "position",
        "queue",
        F.col("print").alias("right_print"),
        F.col("node").alias("right_node"),
        F.explode("holders").alias("node"),
    )
    return (
        wanted.join(own, ["position", "node"], "left")
        .filter("own_print IS NULL OR own_print != right_print")
        .join(right, ["position", "right_node"])
        .withColumns({name: F.expr(known) for name, known in names.items()})
        .localCheckpoint()
    )


def differing(comparison: Comparison) -> DataFrame | None:
    """A finding for each transaction, global transaction, and queue outside them, that nodes hold differently."""
    if comparison.odd is None:
        return None
    right = comparison.odd.selectExpr(
        "node", "transaction", "globally", "queue", "position", "kind", "commit", "rows", "false AS own"
    )
    own = comparison.odd.filter("own_kind IS NOT NULL").selectExpr(
        "node", "own_transaction", "own_globally", "own_queue", "position", "own_kind", "own_commit", "own_rows", "true"
    )
    both = right.union(own).withColumn("queue", F.expr("if(transaction IS NULL, queue, NULL)"))
    decides = "kind IN ('decide', 'decide-global')"
    summed = both.groupBy("node", "transaction", "globally", "queue").agg(
        F.min("position").alias("position"),
        F.count_distinct("position").alias("positions"),
        *[
            F.expr(f"{function}(if({decides} AND own = {side}, {value}, NULL)) AS {name}")
            for side, prefix in (("false", "right"), ("true", "own"))
            for function, value, name in (
                ("bool_or", "commit", f"{prefix}_commit"),
                ("bool_or", "NOT commit", f"{prefix}_abort"),
            )
        ],
        F.expr(f"sum(if({decides}, 0, if(own, -rows, rows))) AS lacking"),
    )
    name = F.expr(
        "CASE WHEN transaction IS NULL AND globally IS NULL THEN 'differs'"
        " WHEN right_commit AND own_abort OR right_abort AND own_commit THEN 'two-decisions'"
        " WHEN right_commit AND own_commit IS NULL OR own_commit AND right_commit IS NULL THEN 'half-committed'"
        " WHEN lacking != 0 THEN 'partial' ELSE 'differs' END"
    )
    found = (
        summed.withColumn("name", name)
        .groupBy("name", "transaction", "globally", "queue")
        .agg(
            F.array_sort(F.collect_set("node")).alias("nodes"),
            F.min("position").alias("position"),
            F.max("positions").alias("positions"),
        )
    )
    note = F.expr("concat('at ', positions, if(positions = 1, ' position', ' positions'))")
    return breaches(found.withColumn("note", note))


def holes(facts: DataFrame, stream: Stream, comparison: Comparison) -> DataFrame | None:
    """A finding for each bucket that has positions at which no log holds anything."""
    if not comparison.suspects:
        return None
    wanted = _table(facts.sparkSession, [(bucket.first, bucket.last) for bucket in comparison.suspects])
    present = _rows_in(facts.filter(compared(stream.reaches)), comparison.suspects).select("position").distinct()
    missing = wanted.selectExpr("begin", "explode(sequence(begin, end)) AS position").join(present, "position", "anti")
    found = missing.groupBy("begin").agg(F.min("position").alias("position"), F.count("*").alias("missing"))
    return breaches(
        found.select(F.lit("hole").alias("name"), "position", F.expr("concat(missing, ' missing')").alias("note"))
    )


def stream_rows(facts: DataFrame, stream: Stream, comparison: Comparison) -> DataFrame:
    """Each event of the stream once: from the copy that is read there, or from one that is right where that is not."""
    rows = facts.filter(within(stream.parts))
    if comparison.apart is None:
        return rows
    right = comparison.apart.select("position", "node")
    return rows.join(right.select("position"), "position", "anti").unionByName(
        facts.join(F.broadcast(right), ["position", "node"])
    )
