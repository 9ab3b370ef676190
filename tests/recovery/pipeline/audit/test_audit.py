"""The audit of whole runs: nothing is found in one that went well, and of one into which breaches were planted, each
is found by its name, and nothing else."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from broker_plugin.cli.commands import app
from broker_plugin.cli.pipeline import audit as audit_command
from broker_plugin.cli.pipeline.audit_tables import show
from python_tests.harness.history import UNKNOWN
from recovery.pipeline.audit.audit import audit
from recovery.pipeline.audit.names import BREACHES
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.session import QUIET
from tests.recovery.pipeline.audit import fates
from tests.recovery.pipeline.audit.cluster_run import RECORDED, ClusterRun
from tests.recovery.pipeline.audit.plants import plant, subject
from tests.recovery.pipeline.events import STORY, write_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slice

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "summarize_logs.py"


def test_a_run_in_which_every_promise_held(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three generations, a copied store, a tail that was cut off, a node that lags, and branches of every fate.

    It is told by the script of the documentation, from logs on disk.
    """
    run = ClusterRun()
    report = runpy.run_path(str(EXAMPLE))["tell"](
        spark, run.stored.write(tmp_path), run.write_history(tmp_path / "history.parquet")
    )
    assert (report.found, report.findings) == ({}, [])
    views = {view.name: view for view in report.nodes}
    assert views[run.tail].tail > 2 and views[run.late].lag_events > 50
    assert max(view.first for view in report.nodes) > 100, "a log that begins behind a copy"
    assert [doubt.xid for doubt in report.in_doubt] == [str(fates.DOUBT), str(fates.LOGGED_DOUBT)]
    by_operators = [(each.xid, each.against) for each in report.operated]
    assert by_operators == [(str(fates.BY_OPERATOR), None), (str(fates.MIXED), f"{fates.SIBLING} was committed")]
    assert report.totals["open"] == 0
    attempts = [attempt for attempt in run.history.attempts if not attempt.plain]
    assert report.totals["committed"] > sum(attempt.outcome == "ok" for attempt in attempts) > 15
    assert any(attempt.outcome == UNKNOWN for attempt in attempts)
    primary = run.primary.core.replica.contents
    waiting = {view.queue: view.put - view.taken for view in report.queues}
    assert waiting == {queue: primary.queues.summary(run.numbers[queue]).count for queue in waiting}
    assert set(waiting) > set(RECORDED)
    course = report.course
    assert [each.generation for each in course.take_overs] == [1, 2, 3]
    assert all((each.pause or 0) > 0.5 for each in course.take_overs[1:])
    assert sum(each.committed for each in course.intervals) == report.totals["committed"]
    assert {flow.queue for flow in course.flows} == set(waiting)
    told = capsys.readouterr().out
    assert f"{report.totals['committed']} transactions were committed" in told and "no promise was seen broken" in told
    assert "decide commit" in told.split("the slowest commit")[1]
    show(report)
    shown = capsys.readouterr().out
    assert str(fates.DOUBT) in shown and "mixed: " in shown and "no promise was seen broken" in shown


def test_every_planted_breach_is_found_by_name_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """By the command, from Parquet: a log with a hole could not be read."""
    run = ClusterRun()
    planted = plant(run)
    pq.write_table(run.stored.rows(), tmp_path / "rows.parquet")
    history, out, page = run.write_history(tmp_path / "history.parquet"), tmp_path / "out", tmp_path / "page.html"
    log = fates.log_of_decisions(tmp_path / "decisions.log", commit=False)
    options = ["--history", str(history), "--decisions", str(log), "--json", "--parquet", str(out), "--html", str(page)]
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "rows.parquet"), *options])
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    found = report["findings"]
    assert {subject(finding) for finding in found} == planted
    counts = {each["name"]: each["count"] for each in report["found"]}
    assert counts == Counter(finding["name"] for finding in found) and set(counts) == set(BREACHES)
    for finding in found:
        assert finding["promise"] == BREACHES[finding["name"]].promise
        assert finding["evidence"] or finding["name"] in ("hole", "lost"), finding
        assert finding["name"] != "disobeyed" or {"prepare", "decide"} <= {row["kind"] for row in finding["evidence"]}
    assert [doubt["word"] for doubt in report["in_doubt"]] == [None, "decisions.log says roll back"]
    apart = {view["queue"]: view["apart"] for view in report["queues"]}
    assert apart["feed"] == {run.tail: 2} and apart["plain"][run.late] and not apart["billing"]
    assert spark.read.parquet(str(out / "findings")).count() == len(found)
    evidence = spark.read.parquet(str(out / "evidence")).select("transaction").distinct().collect()
    assert {each["transaction"] for each in found} <= {None, *(row["transaction"] for row in evidence)}
    assert page.read_text().count("<svg") == 4 and "P1 partial: 2" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "there is no directory nowhere"),
        ([str(Path(__file__).parent)], "node"),
        ([__file__], "no rows of logs"),
        ([".", "--history", __file__], "no history of clients"),
        ([".", "--decisions", __file__], "is damaged at offset 0"),
        ([".", "--html", str(Path(__file__) / "page.html")], "cannot be written"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_a_sentence(
    spark: SparkSession, arguments: list[str], sentence: str
) -> None:
    result = CliRunner().invoke(app, ["audit", *arguments])
    assert result.exit_code != 0 and sentence in str(result.exception)


def test_spark_itself_says_nothing_beside_the_sentence_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a damaged log it printed 83 lines of its own and of Python's tracebacks."""
    write_node(tmp_path, STORY)
    asked: list[bool] = []

    def begin(name: str, master: str | None = None, *, quiet: bool = False) -> None:
        asked.append(quiet)
        raise PipelineError("enough")

    monkeypatch.setattr(audit_command, "spark_session", begin)
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert result.exit_code == 1 and asked == [True] and QUIET == {"spark.log.level": "OFF"}


def test_an_earlier_audit_is_not_written_over(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    with pytest.raises(PipelineError, match="evidence is there already"):
        audit(spark.range(0).toDF("node"), parquet=tmp_path)
