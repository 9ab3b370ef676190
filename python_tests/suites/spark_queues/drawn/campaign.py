"""Case after case on one cluster, which is made anew behind a case that did not hold; a file remembers what is done."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from python_tests.harness.crash_table import Broken
from python_tests.suites.spark_queues.drawn.brokers import Brokers
from python_tests.suites.spark_queues.drawn.case import Case
from python_tests.suites.spark_queues.drawn.real import RealRun
from python_tests.suites.spark_queues.drawn.run import NOTHING, Found, Run


class Result(NamedTuple):
    """A case as it ended. ``rows`` were each counted; ``done`` and ``refused``: counts by name; ``said`` is for people.

    ``broken``: what was wrong, and nothing was counted then; empty for a case that held. ``seconds``: what it took,
    with the wait for brokers that are well.
    """

    seed: int
    drawn: str
    real: bool
    seconds: float
    rows: int
    drivers: int
    points: int
    done: dict[str, int]
    refused: dict[str, int]
    said: str
    broken: str = ""


def held(case: Case, seconds: float, found: Found) -> Result:
    """Of a case that did."""
    done: Counter[str] = Counter()
    for each in found.done:
        how = "" if not each.how else f" ({each.how})" if each.how == NOTHING else " (refused)"
        done[f"{each.deed}{how}"] += 1
    return Result(
        case.seed, str(case), case.real, seconds, found.rows, found.drivers, found.points, done, found.refused,
        said(found),
    )


@dataclass
class Totals:
    """Sums over cases. ``broken``: what was wrong, by seed; ``done`` and ``refused``: counts by name.

    ``seconds`` are those of all cases, ``real_seconds`` those of the cases by Spark itself among them.
    """

    cases: int = 0
    real: int = 0
    rows: int = 0
    drivers: int = 0
    points: int = 0
    seconds: float = 0.0
    real_seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """One more case."""
        self.cases += 1
        self.real += result.real
        for name in ("rows", "drivers", "points", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.real_seconds += result.seconds if result.real else 0.0
        self.done.update(result.done)
        self.refused.update(result.refused)
        if result.broken:
            self.broken[result.seed] = result.broken

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "seconds": round(self.seconds, 1), "real_seconds": round(self.real_seconds, 1)}


def run_one(case: Case, brokers: Brokers, directory: Path) -> Found:
    """On brokers that are well. Raises Broken."""
    try:
        return (RealRun if case.real else Run)(case, brokers, directory).run()
    except TimeoutError as error:
        raise Broken(str(error)) from error


def campaign(
    cases: Iterable[Case],
    directory: Path,
    say: Callable[[str], None],
    until_broken: bool,
    totals: Totals,
    file: Path | None = None,
) -> None:
    """Run them; each is told when it has ended, and counted in ``totals``, whatever ends the run.

    ``until_broken``: the first case that does not hold is the last.
    What ``file`` says is done is not run again; it gets a line of JSON for every case that has ended.
    """
    known = {result.seed: result for result in _read(file)}
    cases = list(cases)
    for case in cases:
        if case.seed in known:
            totals.add(known[case.seed])
    for result in _run([case for case in cases if case.seed not in known], directory):
        totals.add(result)
        if file is not None:
            _append(file, result)
        if result.broken:
            say(f"{result.drawn}\n  BROKEN after {result.seconds:.1f} s: {result.broken}")
            if until_broken:
                break
        else:
            say(f"{result.drawn}\n  {totals.cases:4}  {result.seconds:5.1f} s  {result.said}")


def _append(file: Path, result: Result) -> None:
    """On a line of its own."""
    whole = not file.exists() or file.read_bytes()[-1:] in (b"", b"\n")
    with file.open("a") as out:
        out.write(("" if whole else "\n") + json.dumps(result._asdict()) + "\n")


def _read(file: Path | None) -> Iterator[Result]:
    """What has ended, without lines that were not written to their ends."""
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                yield Result(**json.loads(line))


def _run(cases: Iterable[Case], directory: Path) -> Iterator[Result]:
    """Each as it ends."""
    with ExitStack() as stack:
        brokers: Brokers | None = None
        for case in cases:
            if brokers is None:
                brokers = stack.enter_context(Brokers(directory / f"brokers-{case.seed}"))
            began = time.monotonic()
            try:
                brokers.settled_down()
                found = run_one(case, brokers, directory)
            except (Broken, TimeoutError) as broken:
                brokers = None
                stack.close()
                took = time.monotonic() - began
                yield Result(case.seed, str(case), case.real, took, 0, 0, 0, {}, {}, "", str(broken))
            else:
                yield held(case, time.monotonic() - began, found)


def said(found: Found) -> str:
    """In a line."""
    refused = ", ".join(f"{count} x {name}" for name, count in found.refused.items())
    return f"{'; '.join(map(str, found.done))}" + (f"; refused: {refused}" if refused else "")
