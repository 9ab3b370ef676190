"""Many seeds, on several processes, and what they did in sum."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.coordinator_model.run import Result, Run

CHUNK = 20
SUMS = ("transactions", "committed", "unknown", "faults", "steps")


@dataclass
class Totals:
    """Sums over seeds. ``struck``: how often each kind of fault did. ``broken``: (seed, promise, sentence)."""

    seeds: int = 0
    transactions: int = 0
    committed: int = 0
    unknown: int = 0
    faults: int = 0
    steps: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """One more seed."""
        self.seeds += 1
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.struck.update(result.struck)
        if result.promise:
            self.broken.append((result.seed, result.promise, result.broken))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "struck": dict(sorted(self.struck.items()))}


def run_chunk(seeds: range) -> list[Result]:
    """One after the other."""
    return [Run(seed).run() for seed in seeds]


def campaign(first: int, count: int, jobs: int, say: Callable[[str], None]) -> Totals:
    """Run ``count`` seeds from ``first`` on; ``say`` is told how far it is. Ctrl-C ends it with what there is."""
    totals = Totals()
    with suppress(KeyboardInterrupt):
        for results in _parts(first, count, jobs):
            for each in results:
                totals.add(each)
            say(
                f"{totals.seeds:,} of {count:,} seeds, {totals.transactions:,} transactions, {totals.faults:,} faults, "
                f"{len(totals.broken)} broken"
            )
    totals.broken.sort()
    return totals


def _parts(first: int, count: int, jobs: int) -> Iterator[list[Result]]:
    chunks = [range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)]
    if jobs == 1:
        yield from map(run_chunk, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap_unordered(run_chunk, chunks)
