"""How the run went: outcomes, latencies, take-overs and queues over time, in few enough numbers to be drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recovery.pipeline.audit.facts import Chapter, moment
from recovery.pipeline.audit.stream import Stream

STEPS = 120
"""So many intervals, at most; an interval is a whole number of seconds"""
QUEUES = 8
"""The busiest are drawn"""


@dataclass(frozen=True)
class Interval:
    """``at``: its beginning. Counts of decisions, and milliseconds from prepare to decision."""

    at: datetime
    committed: int
    rolled_back: int
    p50: float | None
    p99: float | None
    longest: float | None


@dataclass(frozen=True)
class Flow:
    """Messages of one queue in one interval."""

    queue: str
    at: datetime
    put: int
    taken: int


@dataclass(frozen=True)
class TakeOver:
    """A generation: when it began, under which primary, and how many seconds around that nothing was decided or
    published."""

    generation: int
    position: int
    at: datetime
    primary: str
    pause: float | None


@dataclass
class Course:
    """``seconds``: the length of an interval."""

    seconds: int = 1
    began: datetime | None = None
    ended: datetime | None = None
    intervals: list[Interval] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    take_overs: list[TakeOver] = field(default_factory=list)

    def times(self) -> list[datetime]:
        """The beginning of every interval, also of those in which nothing happened; none if nothing ever did."""
        if self.began is None or self.ended is None:
            return []
        first, last = (int(each.timestamp()) // self.seconds for each in (self.began, self.ended))
        return [datetime.fromtimestamp(step * self.seconds, UTC) for step in range(first, last + 1)]


def course_of(chapters: Iterable[Chapter], stream: Stream, transactions: DataFrame, messages: DataFrame) -> Course:
    """By the times of frames, which are the clocks' of the primaries of the moment."""
    counted = {(part.node, part.generation) for part in stream.parts}
    told = [each for each in chapters if (each.span.node, each.span.generation) in counted]
    began, ended = min(each.began for each in told), max(each.ended for each in told)
    seconds = max(1, int((ended - began).total_seconds()) // STEPS + 1)
    return Course(
        seconds, began, ended, _intervals(transactions, seconds), _flows(messages, seconds), take_overs_of(told)
    )


def take_overs_of(chapters: Iterable[Chapter]) -> list[TakeOver]:
    """Every generation of which a log holds the beginning, in order."""
    found: list[TakeOver] = []
    stopped: datetime | None = None
    for each in sorted(chapters, key=lambda chapter: (chapter.span.generation, chapter.span.first)):
        if each.primary is not None:
            pause = (each.worked - stopped).total_seconds() if stopped and each.worked else None
            found.append(TakeOver(each.span.generation, each.span.first, each.began, each.primary, pause))
        stopped = each.stopped or stopped
    return found


def _step(column: str, seconds: int) -> str:
    return f"timestamp_seconds(unix_seconds({column}) div {seconds} * {seconds})"


def _intervals(transactions: DataFrame, seconds: int) -> list[Interval]:
    waited = transactions.filter("decided_at IS NOT NULL").selectExpr(
        f"{_step('decided_at', seconds)} AS at", "committed",
        "if(committed, (unix_micros(decided_at) - unix_micros(prepared_at)) / 1000, NULL) AS waited",
    )  # fmt: skip
    summed = waited.groupBy("at").agg(
        F.expr("count_if(committed) AS committed"), F.expr("count_if(NOT committed) AS rolled_back"),
        F.expr("percentile_approx(waited, array(0.5, 0.99), 1000) AS shares"), F.expr("max(waited) AS longest"),
    )  # fmt: skip
    found = []
    for row in summed.orderBy("at").collect():
        p50, p99 = row["shares"] or (None, None)
        found.append(Interval(moment(row["at"]), row["committed"], row["rolled_back"], p50, p99, row["longest"]))
    return found


def _flows(messages: DataFrame, seconds: int) -> list[Flow]:
    put = messages.filter("put_time IS NOT NULL").selectExpr(
        "queue", f"{_step('put_time', seconds)} AS at", "1 AS put", "0 AS taken"
    )
    taken = messages.filter("take_time IS NOT NULL").selectExpr(
        "queue", f"{_step('take_time', seconds)} AS at", "0", "1"
    )
    summed = put.union(taken).groupBy("queue", "at").agg(F.sum("put").alias("put"), F.sum("taken").alias("taken"))
    summed = summed.filter("queue IS NOT NULL")
    busiest = summed.groupBy("queue").agg(F.sum("put").alias("all")).orderBy(F.desc("all"), "queue").limit(QUEUES)
    rows = summed.join(F.broadcast(busiest.select("queue")), "queue").orderBy("queue", "at").collect()
    return [Flow(row["queue"], moment(row["at"]), row["put"], row["taken"]) for row in rows]
