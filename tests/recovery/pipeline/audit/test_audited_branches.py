"""Branches in a stream that begins in the middle: what is not known is not judged, and what is known is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.pipeline.audit.audited_branches import branches_of, disobeyed, split
from recovery.pipeline.audit.facts import facts_of
from recovery.pipeline.audit.transactions import transactions_of
from tests.recovery.pipeline.audit import fates
from tests.recovery.pipeline.audit.branch_plants import turned_round
from tests.recovery.pipeline.audit.cluster_run import ClusterRun
from tests.recovery.pipeline.audit.plants import Ground
from tests.support.cases import some_of
from txobserver.events import DtxPrepare, GlobalDecision, GlobalForget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slice


def found(spark: SparkSession, run: ClusterRun, first: int) -> set[tuple[str, str]]:
    """What is found in the longest log from this position on: names, and global transactions."""
    rows = run.stored.rows_of(max(run.stored.logs, key=lambda node: len(run.stored.logs[node])))
    stream = facts_of(spark.createDataFrame(rows), False).filter(f"position >= {first}")
    branches = branches_of(stream, transactions_of(stream), ())
    return {(row["name"], row["globally"]) for row in disobeyed(branches).union(split(branches)).collect()}


@pytest.mark.every
def test_a_decision_that_has_expired(spark: SparkSession) -> None:
    """It fences no branch that begins behind it, and the log does not say when that is over."""
    run = ClusterRun()
    [at] = {
        at
        for log in run.stored.logs.values()
        for at, stored in log.items()
        if isinstance(stored.event, GlobalForget) and stored.event.gtrid == fates.ONCE_MORE[0].gtrid
    }
    run.stored.change(at, Ground(run).filler())
    assert found(spark, run, 1) == set()


@pytest.mark.parametrize("begins", some_of([DtxPrepare, GlobalDecision], suite=[GlobalDecision]))
def test_a_stream_that_begins_behind_prepares(spark: SparkSession, begins: type) -> None:
    """At the last prepare before the first decision, and at the first decision on a global transaction."""
    run = ClusterRun()
    log = {at: stored.event for each in run.stored.logs.values() for at, stored in each.items()}
    decided = min(at for at, event in log.items() if isinstance(event, GlobalDecision))
    first = max(at for at, event in log.items() if isinstance(event, begins) and at <= decided)
    assert found(spark, run, first) == set()
    for xid in (fates.LOSER, fates.GLOBALLY, fates.PAIR[1]):
        turned_round(Ground(run), xid)
    committed = ("disobeyed", str(fates.LOSER.globally))
    assert found(spark, run, first) == {committed}, "of what was rolled back it is not known whether it was prepared"
