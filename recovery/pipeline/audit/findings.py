"""Findings as rows of one shape, whoever made them; and the few of them that people look at, with their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from recovery.pipeline.audit.facts import any_of, moment
from recovery.pipeline.audit.names import BREACHES

FIELDS = {
    "name": "string",
    "transaction": "long",
    "nodes": "array<string>",
    "queue_id": "long",
    "queue": "string",
    "replication_id": "long",
    "position": "long",
    "attempt": "string",
    "message": "string",
    "note": "string",
}
"""``attempt`` and ``message``: the client's names for the transaction and the message."""
EACH = 20
"""So many of each name are shown; how many there are is counted, and the Parquet output has all."""
EVIDENCE = 200
"""Rows of evidence for one finding, at most"""
BODY = 60
"""Bytes of a body that the evidence shows"""


@dataclass
class Finding:
    """One breach of a promise, with the events that show it: rows of the pipeline's schema."""

    name: str
    promise: str
    transaction: int | None
    nodes: list[str] | None
    queue_id: int | None
    queue: str | None
    replication_id: int | None
    position: int | None
    attempt: str | None
    message: str | None
    note: str | None
    evidence: list[dict[str, Any]] = field(default_factory=list)


def breaches(found: DataFrame) -> DataFrame:
    """In the shape of ``FIELDS``: what is not there is null."""
    there = found.columns
    return found.select(
        *[
            F.col(name).cast(kind).alias(name) if name in there else F.lit(None).cast(kind).alias(name)
            for name, kind in FIELDS.items()
        ]
    )


def all_of(found: Iterable[DataFrame | None]) -> DataFrame:
    """All findings, each with the promise that it breaks."""
    promises = F.create_map(*[F.lit(each) for name, breach in BREACHES.items() for each in (name, breach.promise)])
    together = reduce(DataFrame.union, (each for each in found if each is not None))
    return together.withColumn("promise", promises[F.col("name")])


def some_of(findings: DataFrame) -> tuple[dict[str, int], list[Finding]]:
    """How many there are of each name, and the first few of each, in the order of the stream."""
    each = Window.partitionBy("name")
    order = each.orderBy(F.col("position").asc_nulls_last(), "transaction", "attempt", "message", "replication_id")
    ranked = findings.withColumn("count", F.count("*").over(each)).withColumn("rank", F.row_number().over(order))
    rows = ranked.filter(F.col("rank") <= EACH).collect()
    ranks = {name: rank for rank, name in enumerate(BREACHES)}
    rows.sort(key=lambda row: (ranks[row["name"]], row["rank"]))
    found = [Finding(**{name: row[name] for name in (*FIELDS, "promise")}) for row in rows]
    return {row["name"]: int(row["count"]) for row in rows}, found


def with_evidence(found: Sequence[Finding], rows: DataFrame) -> None:
    """Give each finding its rows, from every log: of its transaction, of its message, or of its position."""
    if not found:
        return
    keys = [_key(each) for each in found]
    wanted = any_of(F.col(column).isin(sorted(values)) for column, values in _by_column(keys).items() if values)
    order = Window.partitionBy("node", F.coalesce("transaction", "position")).orderBy("position", "part")
    shown = (
        rows.filter(wanted)
        .withColumn("body", F.expr(f"substring(body, 1, {BODY})"))
        .drop("properties")
        .withColumn("rank", F.row_number().over(order))
        .filter(F.col("rank") <= EVIDENCE)
        .drop("rank")
        .orderBy("position", "node", "part")
    )
    for row in shown.collect():
        told = {**row.asDict(), "time": moment(row["time"])}
        for finding, key in zip(found, keys, strict=True):
            if len(finding.evidence) < EVIDENCE and any(told[column] == value for column, value in key.items()):
                finding.evidence.append(told)


def _key(finding: Finding) -> dict[str, int]:
    """Which rows a finding is about: those with one of these values."""
    if finding.replication_id is not None:
        return {"replication_id": finding.replication_id}
    if finding.transaction is not None:
        return {"transaction": finding.transaction}
    return {} if finding.position is None else {"position": finding.position}


def _by_column(keys: Iterable[dict[str, int]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for key in keys:
        for column, value in key.items():
            found.setdefault(column, set()).add(value)
    return found


def evidence_of(findings: DataFrame, rows: DataFrame) -> DataFrame:
    """Every row, of every log, that some finding is about."""
    parts = []
    for column in ("transaction", "replication_id", "position"):
        wanted = findings.select(column).dropna().distinct()
        parts.append(rows.join(wanted, column, "semi"))
    return reduce(DataFrame.unionByName, parts).distinct()
