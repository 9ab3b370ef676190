"""Many seeds on all cores, in chunks that resume: a file gets one line of JSON for every chunk that is done."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.faults import Fault, draw_schedule
from tests.simulation.run import LOAD_SECONDS, Result, Run
from tests.simulation.world import World

CHUNK = 100


@dataclass
class Totals:
    """Sums over seeds. ``broken`` lists (seed, promise, sentence)."""

    seeds: int = 0
    idle: int = 0
    events: int = 0
    commits: int = 0
    unknown: int = 0
    failovers: int = 0
    faults: int = 0
    hits: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """One more seed."""
        self.seeds += 1
        self.idle += result.idle
        for name in ("events", "commits", "unknown", "failovers", "faults", "hits"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.kinds.update(result.struck)
        if result.broken:
            self.broken.append((result.seed, result.promise, result.broken))

    def merge(self, other: Totals) -> None:
        """The sums of another chunk."""
        for name in ("seeds", "idle", "events", "commits", "unknown", "failovers", "faults", "hits"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kinds.update(other.kinds)
        self.broken += other.broken

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "kinds": dict(sorted(self.kinds.items()))}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Totals:
        """From JSON."""
        broken = [(int(seed), str(promise), str(text)) for seed, promise, text in found["broken"]]
        return cls(**{**found, "kinds": Counter(found["kinds"]), "broken": broken})


def seed_of_the_commit() -> int:
    """A seed that changes with every commit; 0 where there is no repository."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return int(found.stdout[:12] or "0", 16)


def run_chunk(seeds: list[int]) -> Totals:
    """Run these seeds, one after the other."""
    totals = Totals()
    for seed in seeds:
        totals.add(Run(seed).run())
    return totals


def striking(kind: str, first: int, count: int) -> list[int]:
    """The first ``count`` seeds from ``first`` on whose schedule holds a fault of this kind."""
    found = (seed for seed in itertools.count(first) if kind in {fault.kind for fault in schedule_of(seed)})
    return list(itertools.islice(found, count))


def schedule_of(seed: int) -> list[Fault]:
    """The schedule that belongs to a seed, without a cluster."""
    return draw_schedule(World(seed), LOAD_SECONDS)


def chunks(first: int, count: int, done: set[int], size: int) -> list[list[int]]:
    """The seeds in chunks of ``size``, without those chunks that begin with a seed that is done."""
    starts = range(first, first + count, size)
    return [list(range(start, min(start + size, first + count))) for start in starts if start not in done]


def campaign(
    first: int,
    count: int,
    jobs: int,
    file: Path | None,
    say: Callable[[str], None],
    beside: int | None = None,
    size: int = CHUNK,
) -> Totals:
    """Run ``count`` seeds from ``first`` on, ``size`` at a time, and the seed ``beside`` with the first of them.

    What ``file`` says is done, by chunks of the same size, is not run again.
    """
    totals, done = Totals(), set[int]()
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            if first <= entry["first"] < first + count:
                done.add(entry["first"])
                totals.merge(Totals.from_dict(entry["totals"]))
    began, before = time.monotonic(), totals.events
    work = chunks(first, count, done, size)
    if beside is not None and not done:
        work.append([beside])
    for start, part in _parts(work, jobs):
        totals.merge(part)
        if file is not None:
            with file.open("a") as out:
                out.write(json.dumps({"first": start, "totals": part.as_dict()}) + "\n")
        rate = (totals.events - before) / (time.monotonic() - began)
        say(f"{totals.seeds} seeds, {totals.commits} commits, {len(totals.broken)} broken, {rate:,.0f} events/s")
    return totals


def _parts(work: list[list[int]], jobs: int) -> Iterator[tuple[int, Totals]]:
    if jobs == 1:
        for seeds in work:
            yield seeds[0], run_chunk(seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_numbered, work)


def _numbered(seeds: list[int]) -> tuple[int, Totals]:
    return seeds[0], run_chunk(seeds)
