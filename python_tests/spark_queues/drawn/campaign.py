"""Case after case on one cluster, which is made anew behind a case that did not hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_tests.crash_table import Broken
from python_tests.spark_queues.drawn.brokers import Brokers
from python_tests.spark_queues.drawn.case import Case
from python_tests.spark_queues.drawn.real import RealRun
from python_tests.spark_queues.drawn.run import NOTHING, Found, Run


@dataclass
class Totals:
    """Sums over cases. ``broken``: what was wrong, by seed; ``done`` and ``refused``: counts by name."""

    cases: int = 0
    real: int = 0
    rows: int = 0
    drivers: int = 0
    points: int = 0
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    broken: dict[int, str] = field(default_factory=dict)

    def held(self, case: Case, found: Found) -> None:
        """Count a case that did."""
        self.rows += found.rows
        self.drivers += found.drivers
        self.points += found.points
        for each in found.done:
            how = "" if not each.how else f" ({each.how})" if each.how == NOTHING else " (refused)"
            self.done[f"{each.deed}{how}"] += 1
        self.refused.update(found.refused)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "seconds": round(self.seconds, 1)}


def run_one(case: Case, brokers: Brokers, directory: Path) -> Found:
    """On brokers that are well. Raises Broken."""
    try:
        return (RealRun if case.real else Run)(case, brokers, directory).run()
    except TimeoutError as error:
        raise Broken(str(error)) from error


def campaign(
    cases: Iterable[Case], directory: Path, say: Callable[[str], None], until_broken: bool, totals: Totals
) -> None:
    """Run them; each is told when it has ended, and counted in ``totals``, whatever ends the run.

    ``until_broken``: the first case that does not hold is the last.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        brokers: Brokers | None = None
        for case in cases:
            if brokers is None:
                brokers = stack.enter_context(Brokers(directory / f"brokers-{case.seed}"))
            totals.seconds = time.monotonic() - began
            totals.cases += 1
            totals.real += case.real
            started = time.monotonic()
            try:
                brokers.settled_down()
                found = run_one(case, brokers, directory)
            except Broken as broken:
                totals.broken[case.seed] = str(broken)
                brokers = None
                stack.close()
                say(f"{case}\n  BROKEN after {time.monotonic() - started:.1f} s: {broken}")
                if until_broken:
                    break
            else:
                totals.held(case, found)
                say(f"{case}\n  {totals.cases:4}  {time.monotonic() - started:5.1f} s  {said(found)}")
    totals.seconds = time.monotonic() - began


def said(found: Found) -> str:
    """In a line."""
    refused = ", ".join(f"{count} x {name}" for name, count in found.refused.items())
    return f"{'; '.join(map(str, found.done))}" + (f"; refused: {refused}" if refused else "")
