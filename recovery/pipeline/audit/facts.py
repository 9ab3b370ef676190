"""The rows as the audit reads them: without bodies, but with a mark of everything that all copies must have alike."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recovery.pipeline.audit.stream import Reach, Span

ALIKE = (
    "generation", "position", "part", "kind", "transaction", "queue_id", "place", "replication_id", "exchange",
    "routing_key", "properties", "body", "reason", "commit", "detail",
)  # fmt: skip
"""What the frames themselves say. Names of queues and numbers of events are told by the reader, as far as its log goes
back, and the time of a frame decides nothing."""
NAMED = ("open", "token", "decide-global", "forget", "forget-global")
"""Kinds whose events say their xid themselves."""
FIELDS = (
    "node", "generation", "position", "part", "kind", "transaction", "xid", "number", "queue_id", "queue", "place",
    "replication_id", "commit", "detail", "time",
)  # fmt: skip
MESSAGE = "substring_index(cast(body AS string), ' ', 1)"
"""A message's id as the clients' history knows it: its body begins with it (docs/stress.md). AMQP's message-id would
not do: some client libraries make one up for every message."""


class Chapter(NamedTuple):
    """One generation in one log. ``began`` and ``ended``: times of its first and last frame; ``worked`` and
    ``stopped``: of the first and last with a publish or a commit; ``primary`` is known if the log holds its beginning.
    """

    span: Span
    began: datetime
    ended: datetime
    worked: datetime | None
    stopped: datetime | None
    primary: str | None


def facts_of(rows: DataFrame, with_messages: bool) -> DataFrame:
    """``FIELDS``, ``mark``, and ``message`` if clients' messages are to be told apart."""
    own_xid = F.when(F.col("kind").isin(*NAMED), F.col("xid"))
    mark = F.xxhash64(*[F.col(name) for name in ALIKE], own_xid).alias("mark")
    message = F.when(F.col("kind").isin("publish", "enqueue"), F.expr(MESSAGE)).alias("message")
    return rows.select(*FIELDS, mark, *([message] if with_messages else []))


def moment(collected: datetime) -> datetime:
    """A time that was collected, which PySpark gives in this machine's zone without saying so, in UTC."""
    return collected.astimezone(UTC)


def chapters_of(facts: DataFrame) -> list[Chapter]:
    """Which generations each log holds."""
    works = "kind = 'publish' OR kind = 'decide' AND commit"
    found = facts.groupBy("node", "generation").agg(
        F.min("position").alias("first"),
        F.max("position").alias("last"),
        F.min("time").alias("began"),
        F.max("time").alias("ended"),
        F.expr(f"min(if({works}, time, NULL)) AS worked"),
        F.expr(f"max(if({works}, time, NULL)) AS stopped"),
        F.expr("min(if(kind = 'generation', get_json_object(detail, '$.primary'), NULL)) AS primary"),
    )
    return [
        Chapter(
            Span(row["node"], row["generation"], row["first"], row["last"]),
            moment(row["began"]),
            moment(row["ended"]),
            row["worked"] and moment(row["worked"]),
            row["stopped"] and moment(row["stopped"]),
            row["primary"],
        )
        for row in found.collect()
    ]


def within(spans: Iterable[Span]) -> Column:
    """Whether a row is a part of these, each from its own node's copy."""
    return any_of(
        (F.col("node") == span.node) & F.col("position").between(span.first, span.last) for span in merged(spans)
    )


def compared(reaches: Iterable[Reach]) -> Column:
    """Whether a row takes part in the comparison of nodes."""
    return any_of((F.col("node") == each.node) & F.col("position").between(each.first, each.last) for each in reaches)


def behind(reaches: Iterable[Reach]) -> Column:
    """Whether a row stands in a tail that was overwritten elsewhere."""
    return any_of((F.col("node") == each.node) & (F.col("position") > each.last) for each in reaches)


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether one of these holds; false for none."""
    return reduce(or_, conditions, F.lit(False))


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same, with neighbours of one node as one: the generation is not looked at."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].node == span.node and joined[-1].last + 1 == span.first:
            joined[-1] = joined[-1]._replace(last=span.last)
        else:
            joined.append(span)
    return joined
