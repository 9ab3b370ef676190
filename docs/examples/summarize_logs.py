"""Summarize what happened in a cluster, from the nodes' logs, whether the cluster runs or not.

    python docs/examples/summarize_logs.py CLUSTER_OR_NODE... [--history history.parquet]

It prints how many transactions were committed and rolled back, when the primary's role went from node to node, which
branches are in doubt, which promises were broken and by which events, and the events of the slowest commit, with the
nodes whose logs hold each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from txha.events import id_text
from txha.spark import AuditReport, audit, moment, read_history, read_rows, spark_session


def tell(session: SparkSession, paths: Sequence[Path], history: Path | None = None) -> AuditReport:
    """Print the summary on stdout and return the report. Raises PipelineError for a directory that holds no log."""
    rows = read_rows(session, paths)
    told = None if history is None else read_history(session, history)
    report = audit(rows.table, told, costly=rows.costly)
    course, totals = report.course, report.totals
    print(f"from {course.began:%Y-%m-%d %H:%M:%S} to {course.ended:%Y-%m-%d %H:%M:%S} UTC, by the primaries' clocks:")
    print(f"  {totals['committed']:,} transactions were committed, {totals['rolled_back']:,} rolled back")
    for each in course.take_overs:
        pause = "" if each.pause is None else f"; for {each.pause:.1f} s nothing was committed or published"
        print(f"  {each.at:%H:%M:%S}  {each.primary} became primary of generation {each.generation}{pause}")
    for doubt in report.in_doubt:
        print(f"  branch {doubt.xid} is in doubt since {doubt.since:%H:%M:%S}; `txha dtx list` shows it")
    for note in report.notes:
        print(f"  note: {note}")
    for finding in report.findings:
        print(
            f"  {finding.promise} is broken ({finding.name}): transaction {finding.transaction}, {finding.note or ''}"
        )
    if report.clean:
        print("  no promise was seen broken")
    slowest = slowest_commit(rows.table)
    if slowest is not None:
        print(f"the slowest commit was that of transaction {id_text(slowest)}:")
        print_story(rows.table, slowest)
    return report


def slowest_commit(rows: DataFrame) -> int | None:
    """The transaction that waited longest between its prepare and its commit."""
    ends = rows.filter("kind = 'prepare' OR kind = 'decide' AND commit").groupBy("transaction").agg({"time": "max"})
    begins = rows.filter("kind = 'prepare'").groupBy("transaction").agg({"time": "min"})
    waits = ends.join(begins, "transaction").selectExpr("transaction", "`max(time)` - `min(time)` AS wait")
    found = waits.orderBy("wait", "transaction", ascending=False).first()
    return None if found is None else int(found["transaction"])


def print_story(rows: DataFrame, transaction: int) -> None:
    """Print a transaction's events, each once, with the nodes that hold it."""
    events = (
        rows.filter(rows["transaction"] == transaction)
        .groupBy("position", "part", "kind", "queue", "commit", "time")
        .agg(F.array_sort(F.collect_set("node")).alias("nodes"))
        .orderBy("position", "part")
    )
    for row in events.collect():
        outcome = {True: "commit", False: "rollback", None: ""}[row["commit"]]
        what = " ".join(part for part in (row["kind"], row["queue"], outcome) if part)
        print(f"  {moment(row['time']):%H:%M:%S.%f}  {row['position']:>8}  {what:24} on {', '.join(row['nodes'])}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--history", type=Path)
    given = parser.parse_args()
    tell(spark_session("summarize logs"), given.paths, given.history)


if __name__ == "__main__":
    main()
