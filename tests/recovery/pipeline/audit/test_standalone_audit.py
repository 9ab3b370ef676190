"""``txha audit --master``: on a cluster of Spark it finds what it finds embedded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.recovery.pipeline.audit.cluster_run import ClusterRun
from tests.recovery.pipeline.audit.fates import log_of_decisions
from tests.recovery.pipeline.audit.plants import HOLES, Found, plant, subject
from tests.recovery.pipeline.standalone import StandaloneCluster

pytestmark = [pytest.mark.standalone, pytest.mark.timeout(900)]


def audit(
    directory: Path, *options: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command where the stores are, named as an operator there would; the executors have directories of their
    own."""
    command = [sys.executable, "-m", "broker_plugin.cli.main", "audit", "stores", "--json", *options]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def told(report: dict[str, Any]) -> dict[str, Any]:
    """A report without the order of what has none."""
    return {**report, "findings": sorted(report["findings"], key=json.dumps)}


@pytest.mark.parametrize("breached", [False, True], ids=["well", "breached"])
def test_an_audit_on_a_cluster(standalone: StandaloneCluster, tmp_path: Path, breached: bool) -> None:
    """Over nodes' directories, with history and decision log; every breach is planted that leaves a log readable."""
    run = ClusterRun()
    planted: set[Found] = plant(run, HOLES) if breached else set()
    run.stored.write_changed(tmp_path / "stores")
    run.write_history(tmp_path / "history.parquet")
    log_of_decisions(tmp_path / "decisions.log", commit=not breached)
    options = ("--history", "history.parquet", "--decisions", "decisions.log")
    master = ("--master", standalone.url)
    on_cluster = audit(tmp_path, *options, *master, "--parquet", "out", environment=standalone.environment)
    assert on_cluster.returncode == int(breached), on_cluster.stderr[-2000:]
    report = json.loads(on_cluster.stdout)
    assert {subject(finding) for finding in report["findings"]} == planted
    if breached:
        assert told(report) == told(json.loads(audit(tmp_path, *options).stdout))
    written = pq.read_table(tmp_path / "out" / "findings")
    assert written.num_rows == len(report["findings"])
