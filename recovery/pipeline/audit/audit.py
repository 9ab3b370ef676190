"""The whole audit, step by step. Every step is a function of DataFrames that can be used by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recovery.pipeline.audit import clients as told_by
from recovery.pipeline.audit.audited_branches import (
    AuditedBranches,
    Word,
    branches_of,
    disobeyed,
    in_doubt,
    operated,
    split,
)
from recovery.pipeline.audit.course import course_of
from recovery.pipeline.audit.differences import Comparison, compare, differing, holes, stream_rows
from recovery.pipeline.audit.facts import behind, chapters_of, facts_of, moment
from recovery.pipeline.audit.findings import all_of, evidence_of, some_of, with_evidence
from recovery.pipeline.audit.messages import flow_of, messages_of, misled, moves_of
from recovery.pipeline.audit.report import AuditReport, Doubt, Operated, QueueView, node_views, notes_on
from recovery.pipeline.audit.stream import Stream, stream_of
from recovery.pipeline.audit.transactions import broken, transactions_of, undone
from recovery.pipeline.errors import PipelineError

LISTED = 1000
"""So many branches in doubt, and so many that operators decided, are listed, the oldest first"""
TABLES = ("findings", "evidence", "transactions")
Say = Callable[[str], None]


@dataclass(frozen=True)
class _Tables:
    """What the steps share. All but ``facts`` are of the stream, each event once."""

    facts: DataFrame
    stream: DataFrame
    transactions: DataFrame
    branches: AuditedBranches
    moves: DataFrame
    messages: DataFrame


def audit(
    rows: DataFrame,
    history: DataFrame | None = None,
    decisions: Sequence[Word] = (),
    parquet: Path | None = None,
    costly: bool = False,
    say: Say = lambda text: None,
) -> AuditReport:
    """The verdict on logs, as rows of ``schema.ARROW`` of any number of nodes.

    ``history``: the clients' own (docs/stress.md). ``decisions``: what coordinators' logs say. ``parquet``: a directory
    for the tables ``findings``, ``evidence`` and ``transactions``. ``costly``: rows are decoded from logs at each
    reading, so what is needed of them is kept on disk meanwhile. ``say`` is told what goes on. Raises PipelineError if
    there is nothing to audit, or if one of the tables is there already.
    """
    if parquet is not None and (there := [name for name in TABLES if (parquet / name).exists()]):
        raise PipelineError(f"{parquet / there[0]} is there already; give the audit a new place to write to")
    facts = facts_of(rows, history is not None)
    if costly:
        facts = facts.persist(StorageLevel.DISK_ONLY)
    say("looking where the logs begin and end")
    chapters = chapters_of(facts)
    if not chapters:
        raise PipelineError("the logs hold no event")
    stream = stream_of(each.span for each in chapters)
    say(f"comparing {len(stream.reaches)} logs from {stream.first} to {stream.last}")
    comparison = compare(facts, stream)
    say("putting transactions together")
    tables = _tables(facts, stream, comparison, decisions)
    views = node_views(chapters, stream)
    report = AuditReport(nodes=views, notes=notes_on(views, stream, history is not None))
    report.totals = _totals(tables, stream)
    say("following every message")
    findings = _findings(tables, stream, comparison, history).localCheckpoint()
    report.found, report.findings = some_of(findings)
    report.in_doubt, report.operated = _doubts(tables.branches), _operated(tables.branches)
    report.queues = _queues(tables, comparison)
    say("drawing up how the run went")
    report.course = course_of(chapters, stream, tables.transactions, tables.messages)
    if report.findings:
        say("gathering evidence")
        with_evidence(report.findings, rows)
    if parquet is not None:
        say(f"writing {parquet}")
        _write(parquet, findings, rows, tables)
    facts.unpersist()
    return report


def _tables(facts: DataFrame, stream: Stream, comparison: Comparison, decisions: Sequence[Word]) -> _Tables:
    once = stream_rows(facts, stream, comparison)
    transactions = transactions_of(once).localCheckpoint()
    branches = branches_of(once, transactions, decisions)
    moves = moves_of(once, transactions)
    return _Tables(facts, once, transactions, branches, moves, messages_of(moves).localCheckpoint())


def _findings(tables: _Tables, stream: Stream, comparison: Comparison, history: DataFrame | None) -> DataFrame:
    """Every breach that there is."""
    tails = {reach.node: reach.last for reach in stream.reaches if reach.tail}
    found = [
        differing(comparison),
        holes(tables.facts, stream, comparison),
        broken(tables.transactions),
        disobeyed(tables.branches),
        split(tables.branches),
        undone(tables.facts.filter(behind(stream.reaches)), tails) if tails else None,
        misled(tables.messages, tables.transactions, stream.first),
    ]
    if history is not None:
        known = told_by.clients_of(history)
        puts = told_by.puts_of(tables.moves, tables.transactions).localCheckpoint()
        found += [
            told_by.told(known, puts, stream.first == 1),
            told_by.from_nowhere(known, puts),
            told_by.twice(puts),
            told_by.seen_too_much(known, puts),
            told_by.out_of_order(known, puts),
        ]
    return all_of(found)


def _totals(tables: _Tables, stream: Stream) -> dict[str, int]:
    row = tables.transactions.selectExpr(
        "count(*) AS transactions",
        "count_if(committed) AS committed",
        "count_if(decisions > 0 AND NOT committed) AS rolled_back",
        "count_if(decisions = 0 AND NOT stays) AS open",
        "count_if(decisions = 0 AND stays) AS in_doubt",
        "count_if(heuristic) AS heuristic",
        "count_if(NOT opened) AS begun_before",
    ).first()
    assert row is not None
    return {"events": stream.last - stream.first + 1, **{name: int(count) for name, count in row.asDict().items()}}


def _doubts(branches: AuditedBranches) -> list[Doubt]:
    return [
        Doubt(row["transaction"], row["xid"], row["events"], row["prepared"], moment(row["prepared_at"]), row["word"])
        for row in in_doubt(branches).limit(LISTED).collect()
    ]


def _operated(branches: AuditedBranches) -> list[Operated]:
    return [
        Operated(
            row["transaction"], row["xid"], row["committed"], row["decided"], moment(row["decided_at"]), row["against"]
        )
        for row in operated(branches).limit(LISTED).collect()
    ]


def _queues(tables: _Tables, comparison: Comparison) -> list[QueueView]:
    apart: dict[str, Counter[str]] = {}
    if comparison.odd is not None:
        queue = F.coalesce("queue", "own_queue").alias("queue")
        for row in comparison.odd.groupBy(queue, "node").count().filter("queue IS NOT NULL").collect():
            apart.setdefault(row["queue"], Counter())[row["node"]] = row["count"]
    flows = flow_of(tables.messages).filter("queue IS NOT NULL").orderBy("queue").collect()
    return [QueueView(row["queue"], row["put"], row["taken"], dict(apart.get(row["queue"], {}))) for row in flows]


def _write(directory: Path, findings: DataFrame, rows: DataFrame, tables: _Tables) -> None:
    for name, table in zip(TABLES, (findings, evidence_of(findings, rows), tables.transactions), strict=True):
        table.write.parquet(str(directory / name))
