"""The pages of crashes: written when every case has been run and has kept its promise, and otherwise not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from python_tests.harness.crash_table import Broken, make_page
from python_tests.suites.coordinator import crash_table as of_coordinators
from python_tests.suites.coordinator import crashes
from python_tests.suites.spark_queues import crash_table as of_spark
from python_tests.suites.spark_queues import crashes as spark_crashes


class Site:
    """Where every case comes out as it should, but for one."""

    def __init__(self, outcome: Any, broken: object = None) -> None:
        self.run_through: list[Any] = []
        self._outcome = outcome
        self._broken = broken

    def run(self, case: Any) -> Any:
        self._check(case)
        self.run_through.append(case)
        return self._outcome

    def check_the_rest(self) -> None:
        self._check("the rest")

    def _check(self, what: object) -> None:
        if what == self._broken:
            raise Broken(f"{what} is broken")

    @contextmanager
    def opened(self) -> Iterator[Site]:
        yield self


@pytest.mark.parametrize(
    ("cases", "outcome", "cell", "page", "shown"),
    [
        (
            crashes.all_cases(),
            crashes.Found(crashes.KILLED, crashes.DONE, 2),
            of_coordinators.cell,
            of_coordinators.page,
            "committed +2 (untold)",
        ),
        (spark_crashes.all_cases(), spark_crashes.AGAIN, str, of_spark.page, "starts again"),
    ],
)
def test_a_page_shows_every_case_or_is_not_written(
    tmp_path: Path,
    cases: list[Any],
    outcome: Any,
    cell: Callable[[Any], str],
    page: Callable[[Any, float], str],
    shown: str,
) -> None:
    out = tmp_path / "page.md"
    for broken in (cases[3], "the rest"):
        assert make_page(out, Site(outcome, broken).opened(), cases, cell, page) == 1
        assert not out.exists()
    site = Site(outcome)
    assert make_page(out, site.opened(), cases, cell, page) == 0
    assert site.run_through == cases
    assert out.read_text().count(f" {shown} |") == len(cases)
