"""Two of the cases of ``make spark-crash-table``, in which most is at stake; docs/spark_crashes.md shows all.

What a driver's death leaves at each point is also in ``tests/recovery/pipeline/queues/test_batch_decisions.py``,
without Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from python_tests.suites.spark_queues.crashes import AGAIN, ASLEEP, PRIMARY, WENT_ON, Case, Site


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_each_message_comes_out_once(may_kill_nodes: None, tmp_path: Path) -> None:
    with Site(tmp_path / "site") as site:
        assert site.run(Case(PRIMARY, "decided")) == WENT_ON
        assert site.run(Case(ASLEEP, "one committed")) == AGAIN
        site.check_the_rest()
