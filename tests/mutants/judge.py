"""Runs in a scratch copy: tests in a given order until one fails, or seeds until one breaks a promise.

``python -m tests.mutants.judge JOB REPORT``: the job is a file of JSON, the report gets a line of JSON for each step:
what begins, and in the end what killed the mutant, or that nothing did.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

MEMORY = 4 << 30
FILE_SIZE = 2 << 30
SEED = "seed "


@dataclass(frozen=True)
class Job:
    """What is run, in this order: tests by their ids, ``seed N`` for the simulator. ``seconds`` of processor time.

    ``collect``: go on after failures, and report of each step what it ran and how long it took.
    """

    steps: list[str]
    seconds: float = 60.0
    collect: bool = False


@dataclass
class Reporter:
    """Writes lines of JSON."""

    file: IO[str]
    started: float = field(default_factory=time.monotonic)

    def say(self, **words: Any) -> None:
        """One line, at once."""
        self.file.write(json.dumps(words) + "\n")
        self.file.flush()


class Order:
    """A pytest plugin: only the wanted tests, in the wanted order, as long as there is time."""

    def __init__(self, job: Job, wanted: list[str], report: Reporter) -> None:
        self._job, self._report = job, report
        self._rank = {name: at for at, name in enumerate(wanted)}
        self.failed = ""
        self.text = ""
        self.late = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """What has got another id by the mutation is left out."""
        items[:] = sorted(
            (each for each in items if each.nodeid in self._rank), key=lambda each: self._rank[each.nodeid]
        )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Tell what begins."""
        self._report.say(begins=item.nodeid)
        yield
        if out_of_time(self._job):
            self.late = True
            item.session.shouldstop = "out of time"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first failure is the one that counts."""
        if report.failed and not self.failed:
            self.failed, self.text = report.nodeid, report.longreprtext[-1500:]


def judge(job: Job, report: Reporter) -> None:
    """All steps, until one kills the mutant."""
    steps = list(job.steps)
    while steps:
        count = 1
        if steps[0].startswith(SEED):
            killer, text = _seed(steps[0], report)
        else:
            count = next((at for at, each in enumerate(steps) if each.startswith(SEED)), len(steps))
            killer, text = _tests(job, steps[:count], report)
        if killer:
            report.say(killer=killer, text=text, seconds=cpu())
            return
        steps = steps[count:]
        if out_of_time(job):
            report.say(killer="", late=bool(steps), seconds=cpu())
            return
    report.say(killer="", late=False, seconds=cpu())


def _tests(job: Job, names: list[str], report: Reporter) -> tuple[str, str]:
    order = Order(job, names, report)
    files = sorted({name.partition("::")[0] for name in names})
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:timeout", "--no-header"]
    status = pytest.main([*options, *files], plugins=[order])
    if order.failed:
        return order.failed, order.text
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not order.late:
        return "import", f"pytest ended with {status!r}"
    return "", ""


def _seed(step: str, report: Reporter) -> tuple[str, str]:
    report.say(begins=step)
    try:
        from tests.simulation.run import Run

        found = Run(int(step.removeprefix(SEED))).run()
    except Exception as error:
        return step, f"{type(error).__name__}: {error}"
    return (step, found.broken) if found.broken else ("", "")


def cpu() -> float:
    """Seconds of processor time of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def out_of_time(job: Job) -> bool:
    """Whether nothing more may begin."""
    return cpu() > job.seconds


def main(job_file: str, report_file: str) -> None:
    """What the command does."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    job = Job(**json.loads(Path(job_file).read_text()))
    with open(report_file, "w") as file:
        judge(job, Reporter(file))


def write_job(job: Job, path: Path) -> None:
    """For another process to read."""
    path.write_text(json.dumps(asdict(job)))


if __name__ == "__main__":
    main(*sys.argv[1:])
