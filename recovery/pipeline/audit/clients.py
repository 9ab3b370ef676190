"""The stream against the clients' own history (docs/stress.md): what they were told, sent and saw (P1 to P6, P8).

The body of a message begins with its id in the history. That says which transaction of the log is which of a client's.

The clocks of the two have nothing in common. When the stream begins late (retention), what a client did before cannot
be asked of it. What began after the answer to a transaction that stands in the stream as a whole, must stand there too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from recovery.pipeline.audit.findings import breaches

COLUMNS = {"time", "type", "operation", "client", "transaction", "queue", "message", "number", "note"}
"""Of the history, those that are read here."""


@dataclass(frozen=True)
class Clients:
    """``attempts``: a row for each transaction and each plain publish, with what its client was told; ``sent``: a row
    for each message, with the number of its transaction and its own in it; ``seen``: messages that a consumer was
    handed.
    """

    attempts: DataFrame
    sent: DataFrame
    seen: DataFrame


def clients_of(history: DataFrame) -> Clients:
    """Out of the rows of a history."""
    attempts = (
        history.filter("transaction IS NOT NULL")
        .groupBy(F.col("transaction").alias("attempt"))
        .agg(
            F.expr("min(if(operation IN ('transaction', 'rollback', 'publish'), note, NULL)) AS outcome"),
            F.expr("min(if(operation IN ('transaction', 'rollback', 'publish'), number, NULL)) AS attempt_number"),
            F.expr("min(if(operation = 'send', time, NULL)) AS began"),
            F.expr("max(if(operation IN ('transaction', 'rollback', 'publish'), time, NULL)) AS answered"),
            F.expr("count_if(operation = 'send') AS messages"),
        )
    )
    sent = history.filter("operation = 'send'").select(
        F.col("transaction").alias("attempt"), "client", "queue", "message", F.col("number").alias("place_in_attempt")
    )
    seen = history.filter("operation = 'receive'").select("queue", "message").distinct()
    return Clients(attempts, sent, seen)


def puts_of(moves: DataFrame, transactions: DataFrame) -> DataFrame:
    """The messages that the stream puts into queues: ``committed`` or not, ``decided`` at all, seen from the opening on
    (``whole``)."""
    named = transactions.select("transaction", "decided", "opened")
    return (
        moves.filter("put AND queue IS NOT NULL")
        .join(named, "transaction", "left")
        .selectExpr(
            "message", "queue", "replication_id", "transaction", "position", "place", "counts AS committed",
            "transaction IS NULL OR decided IS NOT NULL AS decided", "transaction IS NULL OR opened AS whole",
        )
    )  # fmt: skip


def told(clients: Clients, puts: DataFrame, stream_is_whole: bool) -> DataFrame:
    """Findings on what each client was told of its transaction."""
    found = puts.groupBy("message", "queue").agg(
        F.expr("bool_or(committed) AS committed"),
        F.expr("bool_or(decided) AS decided"),
        F.expr("bool_or(whole) AS whole"),
        F.expr("min(transaction) AS transaction"),
        F.expr("min(position) AS position"),
    )
    each = (
        clients.sent.join(found, ["message", "queue"], "left")
        .groupBy("attempt")
        .agg(
            F.expr("count_if(committed) AS committed"),
            F.expr("count_if(NOT committed AND decided) AS rolled_back"),
            F.expr("count_if(committed IS NOT NULL) AS logged"),
            F.expr("coalesce(bool_and(whole), false) AS whole"),
            F.expr("min(transaction) AS transaction"),
            F.expr("min(position) AS position"),
            F.expr("min(if(committed IS NULL OR NOT committed, message, NULL)) AS missing"),
        )
        .join(clients.attempts, "attempt")
    )
    if stream_is_whole:
        seen_from = F.lit(float("-inf"))
    else:
        earliest = each.filter("outcome = 'ok' AND whole AND committed = messages").agg(F.min("answered")).first()
        seen_from = F.lit(float("inf") if earliest is None or earliest[0] is None else earliest[0])
    name = F.expr(
        "CASE WHEN outcome IN ('failed', 'rolled back') AND committed > 0 THEN 'committed-after-all'"
        " WHEN NOT expected AND NOT (logged > 0 AND whole) THEN NULL"
        " WHEN outcome = 'ok' AND rolled_back > 0 THEN 'told-otherwise'"
        " WHEN outcome = 'ok' AND committed = 0 AND expected THEN 'lost'"
        " WHEN committed > 0 AND committed < messages AND expected THEN 'halved' END"
    )
    note = F.expr(
        "CASE name WHEN 'halved' THEN concat(committed, ' of ', messages, ' messages; ', missing, ' is missing')"
        " ELSE concat('told: ', outcome) END"
    )
    judged = each.withColumn("expected", F.col("began") > seen_from).withColumn("name", name)
    return breaches(judged.filter("name IS NOT NULL").withColumn("note", note))


def from_nowhere(clients: Clients, puts: DataFrame) -> DataFrame:
    """A finding for each committed message that no client sent to its queue, of the queues that clients sent to."""
    queues = clients.sent.select("queue").distinct()
    found = puts.filter("committed").join(F.broadcast(queues), "queue", "semi")
    unsent = found.join(clients.sent.select("message", "queue"), ["message", "queue"], "anti")
    return breaches(unsent.withColumn("name", F.lit("from-nowhere")))


def twice(puts: DataFrame) -> DataFrame:
    """A finding for each message of a client that was put into one queue under two replication ids."""
    found = (
        puts.filter("committed AND message IS NOT NULL")
        .groupBy("message", "queue")
        .agg(F.count_distinct("replication_id").alias("ids"), F.min("position").alias("position"))
    )
    return breaches(
        found.filter("ids > 1").select(
            F.lit("enqueued-twice").alias("name"), "message", "queue", "position",
            F.expr("concat('under ', ids, ' replication ids')").alias("note"),
        )
    )  # fmt: skip


def seen_too_much(clients: Clients, puts: DataFrame) -> DataFrame:
    """A finding for each message that a client was handed and that the stream has not committed."""
    best = puts.groupBy("message", "queue").agg(
        F.expr("bool_or(committed) AS committed"), F.expr("bool_and(whole) AS whole"),
        F.expr("min(transaction) AS transaction"), F.expr("min(position) AS position"),
    )  # fmt: skip
    found = best.filter("NOT committed AND whole").join(clients.seen, ["message", "queue"], "semi")
    return breaches(found.select(F.lit("phantom").alias("name"), "message", "queue", "transaction", "position"))


def out_of_order(clients: Clients, puts: DataFrame) -> DataFrame:
    """A finding for each message that stands before one which its channel had sent to the same queue earlier."""
    numbers = clients.attempts.select("attempt", "attempt_number")
    sent = clients.sent.join(numbers, "attempt")
    placed = (
        puts.filter("committed AND place IS NOT NULL")
        .groupBy("message", "queue")
        .agg(
            F.min("place").alias("place"),
            F.min("position").alias("position"),
            F.min("transaction").alias("transaction"),
        )
    )
    order = Window.partitionBy("client", "queue").orderBy("attempt_number", "place_in_attempt")
    found = sent.join(placed, ["message", "queue"]).withColumn("before", F.lag("place").over(order))
    return breaches(found.filter("place <= before").withColumn("name", F.lit("out-of-order")))
