"""One mutant is put into a scratch copy and judged there, by a process that can be ended."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.mutants.copy import Stopped, end, mutated, start, stopping
from tests.mutants.judge import SEED, Job, write_job
from tests.mutants.mutation import Mutation

PATIENCE = 20.0
"""A test or seed that takes longer than so many seconds, and than so many times its usual time, hangs."""

WAITING = 180.0
"""Seconds by the clock after which a mutant has survived, whatever its processor time."""


@dataclass(frozen=True)
class Verdict:
    """``how``: *test*, *seed*, *import* or *hang* of a dead mutant; *survived* or *late* (its time was up)."""

    how: str
    killer: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def dead(self) -> bool:
        """Whether something noticed."""
        return self.how not in ("survived", "late")


def trial(copy: Path, mutation: Mutation, steps: list[str], usual: dict[str, float], seconds: float = 60.0) -> Verdict:
    """The verdict on one mutant. ``usual``: how long each step takes without a mutation.

    A test may also fail because the machine is busy. So a failure counts if it comes twice, the second time alone.
    """
    with mutated(copy, mutation):
        spent = 0.0
        while True:
            found = _run(copy, steps, usual, seconds - spent)
            spent += found.seconds
            if found.how != "test":
                return replace(found, seconds=spent)
            again = _run(copy, [found.killer], usual, seconds)
            spent += again.seconds
            if again.dead or found.killer not in steps:
                return replace(found, seconds=spent)
            steps = steps[steps.index(found.killer) + 1 :]


def _run(copy: Path, steps: list[str], usual: dict[str, float], seconds: float) -> Verdict:
    if not steps:
        return Verdict("survived", text="no judging test or seed runs this line")
    job, report = copy.parent / "job.json", copy.parent / "report.jsonl"
    write_job(Job(steps, seconds), job)
    report.unlink(missing_ok=True)
    process = start(copy, "tests.mutants.judge", str(job), str(report))
    try:
        hanging = _wait(process, report, usual)
    finally:
        end(process)
    if stopping():
        raise Stopped
    last = _lines(report)[-1:] or [{}]
    if hanging is not None:
        return hanging
    if "killer" not in last[0]:
        return Verdict("test", last[0].get("begins", "import"), f"the process ended with status {process.returncode}")
    return _verdict(last[0])


def _verdict(line: dict[str, object]) -> Verdict:
    killer, seconds = str(line["killer"]), float(str(line["seconds"]))
    if not killer:
        return Verdict("late" if line["late"] else "survived", seconds=seconds)
    how = "seed" if killer.startswith(SEED) else "import" if killer == "import" else "test"
    return Verdict(how, killer, str(line["text"]), seconds)


def _wait(process: subprocess.Popen[str], report: Path, usual: dict[str, float]) -> Verdict | None:
    """Until the process has ended, or its last step hangs."""
    began = since = time.monotonic()
    count = 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            return None
        lines = _lines(report)
        if len(lines) > count:
            count, since = len(lines), time.monotonic()
        step = str(lines[-1].get("begins", "")) if lines else ""
        now = time.monotonic()
        if now - since > PATIENCE * max(1.0, usual.get(step, 0.0)):
            return Verdict("hang", step or "import", seconds=now - began)
        if now - began > WAITING:
            return Verdict("late", seconds=now - began)


def _lines(report: Path) -> list[dict[str, object]]:
    """What has been reported; a line that is being written is left for the next look."""
    if not report.exists():
        return []
    whole = report.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
