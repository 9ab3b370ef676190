"""Findings as rows of one shape, whichever check made them; and the few of them that people look at, with their
evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from recovery.pipeline.audit.facts import any_of, moment
from recovery.pipeline.audit.names import BREACHES
from txobserver.ids import id_text

FIELDS = {
    "name": "string",
    "transaction": "long",
    "globally": "string",
    "nodes": "array<string>",
    "queue_id": "long",
    "queue": "string",
    "replication_id": "long",
    "position": "long",
    "attempt": "string",
    "message": "string",
    "note": "string",
}
"""``globally``: the global transaction, as the column ``xid`` names one. ``attempt`` and ``message``: the client's own
names for the transaction and the message."""
GLOBALLY = "substring_index(xid, ':', 2)"
"""The global transaction that an xid is of"""
FATE = f"if(kind IN ('open', 'prepare', 'decide', 'decide-global', 'forget', 'forget-global'), {GLOBALLY}, NULL)"
"""The global transaction whose fate an event is about: not what its branches do with messages"""
EACH = 20
"""So many of each name are shown; how many there are is counted, and the Parquet output has all."""
EVIDENCE = 200
"""Rows of evidence for one finding, at most"""
SHOWN = ("nodes", "position", "event", "transaction", "queue", "message", "")
TOLD = ("node", "time", "xid", "number", "queue", "message_id")
"""Columns that need not be the same where an event is"""
BODY = 60
"""Bytes of a body that the evidence shows"""


@dataclass
class Finding:
    """One breach of a promise, with the events that show it: rows of the pipeline's schema."""

    name: str
    promise: str
    transaction: int | None
    globally: str | None
    nodes: list[str] | None
    queue_id: int | None
    queue: str | None
    replication_id: int | None
    position: int | None
    attempt: str | None
    message: str | None
    note: str | None
    evidence: list[dict[str, Any]] = field(default_factory=list)

    @property
    def subject(self) -> str:
        """What it is about, in a line."""
        message = " ".join(filter(None, (self.message, _id_text(self.replication_id))))
        told = {
            "transaction": _id_text(self.transaction),
            "global transaction": self.globally,
            "the client's": self.attempt,
            "message": message,
            "queue": self.queue,
            "position": self.position and str(self.position),
            "on": ", ".join(self.nodes or ()),
        }
        return "; ".join([*(f"{what} {which}" for what, which in told.items() if which), *filter(None, [self.note])])

    def shown(self) -> list[tuple[str, ...]]:
        """The evidence for people, in columns ``SHOWN``: what several logs hold alike is one row."""
        return [
            (
                event["node"], f"{event['generation']}.{event['position']}", event["kind"],
                _id_text(event["transaction"]), event["queue"] or "", _id_text(event["replication_id"]), _said(event),
            )
            for event in self._events()
        ]  # fmt: skip

    def _events(self) -> list[dict[str, Any]]:
        found: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in self.evidence:
            key = tuple(str(value) for name, value in row.items() if name not in TOLD)
            if key in found:
                found[key]["node"] += f", {row['node']}"
            else:
                found[key] = dict(row)
        return list(found.values())


def _id_text(identifier: int | None) -> str:
    return "" if identifier is None else id_text(identifier)


def _said(event: Mapping[str, Any]) -> str:
    """What an event says beside what the columns do."""
    detail = json.loads(event["detail"] or "{}")
    if event["kind"] == "prepare":
        return f"counted {detail['count']}"
    if event["kind"] not in ("decide", "decide-global"):
        return event["detail"] or event["reason"] or event["xid"] or ""
    decided = "commit" if event["commit"] else "rollback"
    if event["kind"] == "decide-global":
        return f"{decided} {event['xid']}"
    return f"{decided}, by an operator" if detail.get("heuristic") else decided


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
    """Give each finding its rows, from every log: of its transaction, its global one, its message, or its position."""
    if not found:
        return
    keys = [_key(each) for each in found]
    wanted = any_of(F.col(column).isin(sorted(values)) for column, values in _by_column(keys).items() if values)
    about = F.coalesce("globally", F.col("transaction").cast("string"), F.col("position").cast("string"))
    order = Window.partitionBy("node", about).orderBy("position", "part")
    shown = (
        rows.withColumn("globally", F.expr(FATE))
        .filter(wanted)
        .withColumn("body", F.expr(f"substring(body, 1, {BODY})"))
        .drop("properties")
        .withColumn("rank", F.row_number().over(order))
        .filter(F.col("rank") <= EVIDENCE)
        .drop("rank")
        .orderBy("position", "node", "part")
    )
    for row in shown.collect():
        told = {**row.asDict(), "time": moment(row["time"])}
        del told["globally"]
        for finding, key in zip(found, keys, strict=True):
            if len(finding.evidence) < EVIDENCE and any(row[column] == value for column, value in key.items()):
                finding.evidence.append(told)


def _key(finding: Finding) -> dict[str, Any]:
    """Which rows a finding is about: those with this value."""
    if finding.globally is not None:
        return {"globally": finding.globally}
    if finding.replication_id is not None:
        return {"replication_id": finding.replication_id}
    if finding.transaction is not None:
        return {"transaction": finding.transaction}
    return {} if finding.position is None else {"position": finding.position}


def _by_column(keys: Iterable[dict[str, Any]]) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for key in keys:
        for column, value in key.items():
            found.setdefault(column, set()).add(value)
    return found


def evidence_of(findings: DataFrame, rows: DataFrame) -> DataFrame:
    """Every row, of every log, that some finding is about."""
    parts = []
    rows = rows.withColumn("globally", F.expr(FATE))
    for column in ("transaction", "globally", "replication_id", "position"):
        wanted = findings.select(column).dropna().distinct()
        parts.append(rows.join(wanted, column, "semi"))
    return reduce(DataFrame.unionByName, parts).drop("globally").distinct()
