"""The audit of whole nights: nothing is found in one that went well, and of one into which breaches were planted, each
is found by its name, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from python_tests.history import UNKNOWN
from python_tests.stress.record import Recorder
from recovery.pipeline.audit.audit import audit
from recovery.pipeline.audit.findings import Finding
from recovery.pipeline.audit.names import BREACHES
from recovery.pipeline.audit.report import Report
from tests.spark.audit.night import RECORDED, Night
from tests.spark.audit.plants import Found, plant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Audit = Callable[..., Report]


@pytest.fixture
def audited(spark: SparkSession, tmp_path: Path) -> Audit:
    """The audit of a night and of its clients' history."""

    def run(night: Night, parquet: Path | None = None) -> Report:
        with Recorder(tmp_path / "history.parquet") as recorder:
            recorder.write(night.history)
        history = spark.read.parquet(str(tmp_path / "history.parquet"))
        return audit(spark.createDataFrame(night.rows()), history, parquet)

    return run


def subject(finding: Finding) -> Found:
    """What a finding is about, as ``plants`` says it."""
    if finding.name in ("hole", "undone"):
        return finding.name, finding.position
    about = (finding.attempt, finding.message, finding.replication_id, finding.transaction, finding.queue)
    if finding.name in ("from-nowhere", "out-of-order") or (finding.name == "phantom" and finding.message):
        return finding.name, finding.message
    return finding.name, next(each for each in about if each is not None)


def test_a_night_in_which_every_promise_held(audited: Audit) -> None:
    """Three generations, a copied store, a tail that was cut off, a node that lags, and branches of every fate."""
    night = Night()
    report = audited(night)
    assert (report.found, report.findings) == ({}, [])
    views = {view.name: view for view in report.nodes}
    assert views[night.tail].tail > 2 and views[night.late].lag_events > 50
    assert max(view.first for view in report.nodes) > 100, "a log that begins behind a copy"
    assert [doubt.xid for doubt in report.in_doubt] == [str(night.doubt)]
    assert report.totals["heuristic"] == 1 and report.totals["open"] == 0
    attempts = [attempt for attempt in night.history.attempts if not attempt.plain]
    assert report.totals["committed"] > sum(attempt.outcome == "ok" for attempt in attempts) > 15
    assert any(attempt.outcome == UNKNOWN for attempt in attempts)
    primary = night.primary.core.replica.contents
    waiting = {view.queue: view.put - view.taken for view in report.queues}
    assert waiting == {queue: primary.summary(night.numbers[queue]).count for queue in waiting}
    assert set(waiting) > set(RECORDED)
    course = report.course
    assert [each.generation for each in course.take_overs] == [1, 2, 3]
    assert all((each.pause or 0) > 0.5 for each in course.take_overs[1:])
    assert sum(each.committed for each in course.intervals) == report.totals["committed"]
    assert {flow.queue for flow in course.flows} == set(waiting)


def test_every_planted_breach_is_found_by_name_and_nothing_else(
    audited: Audit, tmp_path: Path, spark: SparkSession
) -> None:
    night = Night()
    planted = plant(night)
    report = audited(night, tmp_path / "out")
    assert {subject(finding) for finding in report.findings} == planted
    assert set(report.found) == {name for name, _ in planted} == set(BREACHES)
    assert report.found == Counter(finding.name for finding in report.findings)
    for finding in report.findings:
        assert finding.promise == BREACHES[finding.name].promise
        assert finding.evidence or finding.name in ("hole", "lost"), finding
        assert (
            all(finding.transaction in (None, row["transaction"]) for row in finding.evidence) or finding.replication_id
        )
    written = spark.read.parquet(str(tmp_path / "out" / "findings"))
    assert written.count() == len(report.findings)
    evidence = spark.read.parquet(str(tmp_path / "out" / "evidence"))
    transactions = {finding.transaction for finding in report.findings if finding.transaction is not None}
    assert transactions <= {row["transaction"] for row in evidence.select("transaction").distinct().collect()}
