"""Runs in an instrumented scratch copy, once: which tests and seeds run which blocks, and how long each takes.

``python -m tests.mutants.collect REPORT seeds | FOLDERS…``; the report gets a line of JSON for each test or seed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.mutants import hits
from tests.mutants.scope import NO_JUDGES, SEEDS


class Recorder:
    """A pytest plugin. What is run by imports belongs to no test; it is reported under an empty name."""

    def __init__(self, report: IO[str]) -> None:
        self._report = report
        self._others = Path(os.environ[hits.FILE])

    def pytest_collection_finish(self) -> None:
        """All modules have been imported."""
        self.record("", 0.0)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """One test, with its fixtures."""
        began = time.monotonic()
        yield
        self.record(item.nodeid, time.monotonic() - began)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One that fails without a mutation cannot judge any, unless it is the instruments that it minds."""
        if report.failed:
            self._report.write(json.dumps({"fails": report.nodeid}) + "\n")

    def record(self, name: str, seconds: float) -> None:
        """What has run since the last call."""
        blocks = set(hits.seen)
        hits.seen.clear()
        if self._others.exists():
            blocks |= {int(line) for line in self._others.read_text().split()}
            self._others.unlink()
        self._report.write(json.dumps({"name": name, "seconds": round(seconds, 3), "blocks": sorted(blocks)}) + "\n")
        self._report.flush()


def main(report_file: str, *what: str) -> None:
    """What the command does."""
    with open(report_file, "w") as report:
        recorder = Recorder(report)
        if what == ("seeds",):
            _seeds(recorder)
        else:
            ignored = [f"--ignore={path}" for path in NO_JUDGES]
            options = ["-q", "-p", "no:cacheprovider"]
            pytest.main([*options, *ignored, *what], plugins=[recorder])


def _seeds(recorder: Recorder) -> None:
    from tests.simulation.run import Run

    recorder.record("", 0.0)
    for seed in range(SEEDS):
        began = time.monotonic()
        found = Run(seed).run()
        assert not found.broken, found.broken
        recorder.record(f"seed {seed}", time.monotonic() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
