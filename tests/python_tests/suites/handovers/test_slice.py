"""A few handovers of a real cluster under load: no outcome is unknown, and no promise is broken. Nothing is timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.load import Load
from python_tests.suites.handovers.run import PROMOTE, SIGTERM, Handovers

SMALL = Load(pika_workers=2, aio_connections=1, aio_channels=3, think=0.02, beat=0.02, rollback=0.05)


@pytest.mark.slice
@pytest.mark.timeout(600)
def test_no_outcome_is_unknown(tmp_path: Path) -> None:
    said: list[str] = []
    # A machine that is busy may need longer than a second for what its clients have begun.
    with LocalCluster(tmp_path / "cluster", 3, "--set", "timing.drain_seconds=20") as cluster:
        run = Handovers(cluster, said.append, SMALL)
        verdict = run.run(4)
    assert verdict.broken == [] and verdict.committed > 20
    assert run.unknown == 0, said
    assert [each.how for each in run.found] == [PROMOTE, SIGTERM] * 2
    assert all(each.said["undecided"] == 0 and each.said["pause"] > 0 for each in run.found)
