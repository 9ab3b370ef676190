"""Messages on their way through queues: in once, out once, at their places, and never before they count (P3, P4)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recovery.pipeline.audit.findings import breaches

_INDEX = "number - 1 - if(token_number < number, 1, 0)"
"""Of an event among those of its transaction that have a place: neither its opening nor its token has one."""
_MESSAGE = {
    "puts": "count_if(put AND counts)",
    "ghosts": "count_if(put AND NOT counts)",
    "takes": "count_if(NOT put AND counts)",
    "handed_out": "count_if(NOT put)",
    "stands": "max(if(put AND counts, place, NULL))",
    "taken_at": "max(if(NOT put, place, NULL))",
    "other_at": "min(if(NOT put, place, NULL))",
    "put_position": "min(if(put AND counts, effective, NULL))",
    "take_position": "min(if(NOT put AND counts, effective, NULL))",
    "position": "min(position)",
    "transaction": "min(if(put, NULL, transaction))",
    "put_time": "min(if(put AND counts, time, NULL))",
    "take_time": "min(if(NOT put AND counts, time, NULL))",
    "queue": "min(queue)",
}


def moves_of(stream: DataFrame, transactions: DataFrame) -> DataFrame:
    """A row for each message that is put into a queue or taken out of one. ``counts``: outside a transaction, or in one
    that was committed; ``effective``: the position from which it does. ``place`` is null where the log does not say."""
    decided = transactions.select("transaction", "committed", "decided", "decided_at", "token_number")
    rows = stream.filter("kind IN ('publish', 'enqueue', 'settle', 'dequeue') AND replication_id IS NOT NULL")
    plain = rows.filter("transaction IS NULL").selectExpr(
        *_KEPT, "kind = 'publish' AS put", "true AS counts", "position AS effective", "place", "time", *_message(stream)
    )
    within = rows.filter("transaction IS NOT NULL").join(decided, "transaction")
    place = f"if(kind = 'enqueue', shiftleft(decided, 20) + {_INDEX}, place) AS place"
    return plain.unionByName(
        within.selectExpr(
            *_KEPT, "kind = 'enqueue' AS put", "committed AS counts", "decided AS effective", place,
            "coalesce(decided_at, time) AS time", *_message(stream),
        )
    )  # fmt: skip


_KEPT = ("transaction", "position", "queue_id", "queue", "replication_id")


def _message(stream: DataFrame) -> list[str]:
    return [name for name in ("message",) if name in stream.columns]


def messages_of(moves: DataFrame) -> DataFrame:
    """A row for each message in each queue."""
    rows = moves.groupBy("queue_id", "replication_id")
    return rows.agg(*[F.expr(f"{expression} AS {name}") for name, expression in _MESSAGE.items()])


def misled(messages: DataFrame, transactions: DataFrame, first: int) -> DataFrame:
    """A finding for each message that went another way than it may. ``first``: where the stream begins.

    A message whose publish stands before the stream, or in a transaction that began before it, may come from nowhere.
    """
    name = F.expr(
        "CASE WHEN puts > 1 THEN 'enqueued-twice' WHEN takes > 1 THEN 'dequeued-twice'"
        " WHEN puts = 0 AND ghosts > 0 AND handed_out > 0 THEN 'phantom'"
        f" WHEN puts = 0 AND handed_out > 0 AND shiftright(taken_at, 20) >= {first} THEN 'never-enqueued'"
        " WHEN puts = 1 AND (stands != taken_at OR stands != other_at OR take_position < put_position)"
        "   THEN 'wrong-place' END"
    )
    found = messages.withColumn("name", name).filter("name IS NOT NULL")
    unseen = transactions.filter("NOT opened").selectExpr("decided AS unseen").dropna()
    known = found.withColumn("unseen", F.expr("if(name = 'never-enqueued', shiftright(taken_at, 20), NULL)"))
    note = F.expr(
        "CASE name WHEN 'enqueued-twice' THEN concat(puts, ' times') WHEN 'dequeued-twice' THEN concat(takes, ' times')"
        " WHEN 'wrong-place' THEN concat('stands at ', stands, ', taken at ', taken_at) END"
    )
    return breaches(known.join(unseen, "unseen", "anti").withColumn("note", note))


def flow_of(messages: DataFrame) -> DataFrame:
    """A row for each queue: how many messages came and went."""
    return messages.groupBy("queue_id").agg(
        F.min("queue").alias("queue"), F.sum("puts").alias("put"), F.sum("takes").alias("taken")
    )
