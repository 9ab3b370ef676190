"""Transactions put together again from the stream, and what must hold within each one (P1, P6)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recovery.pipeline.audit.findings import breaches

_SUMMARY = {
    "xid": "min(xid)",
    "opened": "bool_or(kind = 'open')",
    "events": "count_if(part = 0 AND kind IN ('enqueue', 'dequeue'))",
    "last_event": "max(if(kind IN ('enqueue', 'dequeue', 'token'), position, NULL))",
    "prepared": "min(if(kind = 'prepare', position, NULL))",
    "promised": "max(if(kind = 'prepare', int(get_json_object(detail, '$.count')), NULL))",
    "stays": "coalesce(bool_or(kind = 'prepare' AND instr(detail, '\"at_ms\"') > 0), false)",
    "decisions": "count_if(kind = 'decide')",
    "committed": "coalesce(bool_or(commit), false)",
    "decided": "min(if(kind = 'decide', position, NULL))",
    "decided_in": "min(if(kind = 'decide', generation, NULL))",
    "prepared_in": "min(if(kind = 'prepare', generation, NULL))",
    "heuristic": "coalesce(bool_or(kind = 'decide' AND instr(detail, '\"heuristic\": true') > 0), false)",
    "token_number": "min(if(kind = 'token', number, NULL))",
    "position": "min(position)",
    "began_at": "min(if(kind = 'open', time, NULL))",
    "prepared_at": "min(if(kind = 'prepare', time, NULL))",
    "decided_at": "min(if(kind = 'decide', time, NULL))",
}
"""``stays``: prepared so that no take-over ends it. ``promised``: the number of events that the prepare counted."""


def transactions_of(stream: DataFrame) -> DataFrame:
    """A row for each transaction, from rows that hold each event once."""
    rows = stream.filter("transaction IS NOT NULL").groupBy("transaction")
    return rows.agg(*[F.expr(f"{expression} AS {name}") for name, expression in _SUMMARY.items()])


def broken(transactions: DataFrame) -> DataFrame:
    """A finding for each transaction that cannot have been as the log has it. Without its beginning nothing is said of
    how many events it has."""
    name = F.expr(
        "CASE WHEN decisions > 1 THEN 'two-decisions'"
        " WHEN last_event > prepared OR last_event > decided OR decided < prepared"
        "   OR committed AND opened AND prepared IS NULL THEN 'out-of-turn'"
        " WHEN opened AND events != promised THEN 'partial' END"
    )
    note = F.expr("if(name = 'partial', concat(events, ' events, and its prepare counted ', promised), NULL)")
    return breaches(transactions.withColumn("name", name).filter("name IS NOT NULL").withColumn("note", note))


def undone(tails: DataFrame, ends: dict[str, int]) -> DataFrame:
    """A finding for each node whose overwritten tail shows that a part of it had passed the commit point: a primary
    decides to commit what is prepared, and consumers take what is applied, only then. ``ends``: where tails begin.

    Branches are left aside: a new primary decides them before its own commit point has moved.
    """
    end = F.lit(0)
    for node, last in ends.items():
        end = F.when(F.col("node") == node, F.lit(last)).otherwise(end)
    prepared = (
        tails.filter("transaction IS NOT NULL AND kind IN ('prepare', 'decide')")
        .groupBy("node", "transaction")
        .agg(
            *[
                F.expr(f"{_SUMMARY[each]} AS {each}")
                for each in ("prepared", "prepared_in", "committed", "decided_in", "xid")
            ]
        )
        .filter("committed AND prepared_in = decided_in AND xid IS NULL")
        .selectExpr("node", "prepared AS proven")
    )
    taken = tails.filter("kind IN ('settle', 'dequeue')").selectExpr("node", "shiftright(place, 20) AS proven")
    proven = prepared.union(taken).filter(F.col("proven") > end)
    found = proven.groupBy("node").agg(F.max("proven").alias("proven"))
    return breaches(
        found.select(
            F.lit("undone").alias("name"),
            F.array("node").alias("nodes"),
            F.col("proven").alias("position"),
            F.expr("concat('up to ', proven)").alias("note"),
        )
    )
