"""Branches of distributed transactions against what was decided: in the stream, in coordinators' logs, by operators.

A global transaction is decided in one of three ways: branch by branch, by a ``decide-global`` in the stream, or by a
coordinator's decision log. What a branch did otherwise, only an operator may have told it to do.

What is no breach, and looks like one:

- A decision in the stream is about branches that had begun before it, and that ended behind it. What began behind it is
  refused when it would prepare; but the decision may have been forgotten by then, or have expired, of which the
  log says nothing.
- A branch that was never prepared may be rolled back by anything: a lost connection, a timeout, a take-over.
- Names are given again: behind a rollback, the same xid may be begun and committed. So two branches belong to the same
  attempt only if there was a moment at which both were prepared.
- A Spark sink's batch is decided by a record that names its branches; all others of it are rolled back.
- The log of a coordinator that says nothing of a transaction may have forgotten a commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from recovery.pipeline.audit.findings import GLOBALLY, breaches
from recovery.pipeline.queues.names import FORMAT
from recovery.pipeline.rows.kinds import TOKEN


class Word(NamedTuple):
    """What a coordinator's decision log says of a global transaction (as the column ``xid`` names one)."""

    globally: str
    commit: bool
    log: str


class AuditedBranches(NamedTuple):
    """``ended``: a row for each branch that was decided, as ``transactions_of`` gives it. ``open``: for each that was
    not. Both with ``globally``, and with what the stream (``stream_commit``, at ``stream_at``) and a coordinator's log
    (``log_commit``, ``log``) say of its global transaction: null where they say nothing."""

    ended: DataFrame
    open: DataFrame


def branches_of(stream: DataFrame, transactions: DataFrame, words: Sequence[Word]) -> AuditedBranches:
    """What the stream says is what stood when the branch ended: nothing, if that had been forgotten."""
    branches = transactions.filter(f"xid IS NOT NULL AND NOT startswith(xid, '{TOKEN}')")
    branches = branches.withColumn("globally", F.expr(GLOBALLY))
    ends = F.coalesce("decided", F.lit((1 << 63) - 1)).alias("at")
    decisions = stream.filter("kind IN ('decide-global', 'forget-global')").selectExpr(
        "xid AS globally", "position AS at", "struct(position, commit) AS stands"
    )
    if branches.isEmpty():
        decisions = decisions.limit(0)  # most runs have none, and looking for decisions costs a pass
    before = Window.partitionBy("globally").orderBy("at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    told = (
        branches.select("globally", ends, F.struct(*branches.columns).alias("branch"))
        .unionByName(decisions, allowMissingColumns=True)
        .withColumn("stands", F.last("stands", ignorenulls=True).over(before))
        .filter("branch IS NOT NULL")
        .selectExpr("branch.*", "stands.commit AS stream_commit", "stands.position AS stream_at")
    )
    known = told.join(F.broadcast(_table(stream.sparkSession, words)), "globally", "left").localCheckpoint()
    return AuditedBranches(known.filter("decisions > 0"), known.filter("decisions = 0"))


def _table(session: SparkSession, words: Sequence[Word]) -> DataFrame:
    rows = [{"globally": word.globally, "log_commit": word.commit, "log": word.log} for word in words]
    return session.createDataFrame(pa.Table.from_pylist(rows, _WORDS))


_WORDS = pa.schema({"globally": pa.string(), "log_commit": pa.bool_(), "log": pa.string()})


def disobeyed(branches: AuditedBranches) -> DataFrame:
    """A finding for each branch that ended otherwise than its global transaction had been decided.

    A commit in one phase that was on its way when the stream's decision came is left aside: it was not in doubt.
    """
    by_stream = (
        "if(opened, position, 0) < stream_at AND committed != stream_commit AND if(committed,"
        " stays OR coalesce(prepared > stream_at, NOT opened), stays AND prepared < stream_at)"
    )
    by_log = "committed != log_commit AND (committed OR stays)"
    found = branches.ended.filter(f"NOT heuristic AND ({by_stream} OR {by_log})")
    note = F.expr(f"concat(xid, ' was ', {_done('committed')}, '; ', {_said(by_stream, by_log)})")
    return breaches(
        found.select(
            "transaction", "globally", F.lit("disobeyed").alias("name"), F.col("decided").alias("position"),
            note.alias("note"),
        )
    )  # fmt: skip


def split(branches: AuditedBranches) -> DataFrame:
    """A finding for each global transaction of which branches were prepared at the same time and ended differently."""
    sides = branches.ended.filter(
        f"NOT heuristic AND (stays OR committed AND NOT opened) AND NOT startswith(globally, '{FORMAT}:')"
    ).withColumn("prepared", F.expr("coalesce(prepared, 0)"))
    order = Window.partitionBy("globally").orderBy("prepared", "transaction")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    for name, which in (("committed_until", "committed"), ("rolled_back_until", "NOT committed")):
        sides = sides.withColumn(name, F.max(F.expr(f"if({which}, decided, NULL)")).over(earlier))
    found = sides.filter("prepared < if(committed, rolled_back_until, committed_until)")
    found = found.groupBy("globally").agg(F.min("decided").alias("position"))
    return breaches(found.withColumn("name", F.lit("split")))


def operated(branches: AuditedBranches) -> DataFrame:
    """A row for each branch that an operator decided, in order; ``against``: what says otherwise, null for nothing."""
    mine = branches.ended.filter("heuristic")
    others = branches.ended.selectExpr("globally", "xid AS sibling", "committed AS also")
    siblings = (
        mine.select("globally", "transaction", "committed")
        .join(others, "globally")
        .filter("also != committed")
        .groupBy("transaction")
        .agg(F.min("sibling").alias("sibling"))
    )
    sibling = f"if(sibling IS NULL, NULL, concat(sibling, ' was ', {_done('NOT committed')}))"
    against = _said("stream_commit != committed", "log_commit != committed", sibling)
    found = mine.join(siblings, "transaction", "left").withColumn("against", F.expr(against))
    return found.select("transaction", "xid", "committed", "decided", "decided_at", "against").orderBy("decided")


def in_doubt(branches: AuditedBranches) -> DataFrame:
    """Branches that are prepared and not decided, the oldest first; ``word``: how they will end, null if it is open."""
    word = F.expr(_said("stream_commit IS NOT NULL", "log_commit IS NOT NULL"))
    found = branches.open.filter("stays").withColumn("word", word)
    return found.select("transaction", "xid", "events", "prepared", "prepared_at", "word").orderBy("prepared")


def _said(by_stream: str, by_log: str, *more: str) -> str:
    """SQL for what stream and log say, as far as these conditions hold; null if neither does."""
    stream = f"if({by_stream}, concat('the stream says ', {_verb('stream_commit')}, ' at ', stream_at), NULL)"
    log = f"if({by_log}, concat(log, ' says ', {_verb('log_commit')}), NULL)"
    return f"nullif(concat_ws('; ', {', '.join((stream, log, *more))}), '')"


def _verb(commit: str) -> str:
    return f"if({commit}, 'commit', 'roll back')"


def _done(committed: str) -> str:
    return f"if({committed}, 'committed', 'rolled back')"
