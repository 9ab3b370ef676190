"""Many programs, in chunks that resume: a file gets one line of JSON for every chunk that is done."""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.judge import Fault, Judge, Judged
from python_tests.suites.amqp_programs.race_judge import RaceJudge

CHUNK = 25

Brokers = tuple[Sequence[Address], Address]
"""Every RabbitMQ, and txha."""


@dataclass
class Totals:
    """Sums over programs. ``played``: against which RabbitMQ how many; ``again``: how many of those differed at first,
    and were played with more barriers. ``unsteady``: (seed, RabbitMQ).
    """

    programs: int = 0
    steps: int = 0
    operations: int = 0
    played: dict[str, int] = field(default_factory=dict)
    again: int = 0
    unsteady: list[tuple[int, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add(self, seed: int, judged: Judged) -> None:
        """One more program."""
        self.programs += 1
        self.steps += judged.steps
        self.operations += judged.operations
        self.again += len(judged.again)
        self._count(dict.fromkeys(judged.products, 1))
        self.unsteady += [(seed, product) for product in judged.unsteady]
        self.faults += judged.faults

    def merge(self, other: Totals) -> None:
        """The sums of another chunk."""
        for name in ("programs", "steps", "operations", "again"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._count(other.played)
        self.unsteady += other.unsteady
        self.faults += other.faults

    def _count(self, more: dict[str, int]) -> None:
        for product, count in more.items():
            self.played[product] = self.played.get(product, 0) + count

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "faults": [fault._asdict() for fault in self.faults]}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Totals:
        """From JSON."""
        unsteady = [(int(seed), str(product)) for seed, product in found["unsteady"]]
        return cls(**{**found, "unsteady": unsteady, "faults": [Fault(**each) for each in found["faults"]]})

    def summary(self) -> str:
        """One line."""
        played = ", ".join(f"{count:,} against {product}" for product, count in sorted(self.played.items()))
        return (
            f"{self.programs:,} programs ({played}), {self.operations:,} operations: {len(self.faults)} differ,"
            f" {len(self.unsteady)} are not answered alike by RabbitMQ itself"
        )


def campaign(
    seeds: range,
    brokers: Sequence[Brokers],
    file: Path | None,
    most_faults: int,
    say: Callable[[str], None],
    totals: Totals,
    races: bool = False,
) -> None:
    """Play the programs (or races) of these seeds, one job for each of ``brokers``, until so many faults have been
    found; what ``file`` says is done is not played again. All are counted in ``totals``, whatever ends the run.

    Raises RuntimeError if a broker takes no connection, or if a job is killed.
    """
    work = [range(start, min(start + CHUNK, seeds.stop)) for start in range(seeds.start, seeds.stop, CHUNK)]
    for each, part in _done(file, work, races).items():
        work.remove(each)
        totals.merge(part)
    began, before = time.monotonic(), totals.programs
    for start, part in _parts(work, brokers, races):
        totals.merge(part)
        if file is not None:
            _append(file, json.dumps({"first": start, "races": races, "totals": part.as_dict()}))
        say(f"{totals.summary()}; {(totals.programs - before) / (time.monotonic() - began):.1f} programs/s")
        if len(totals.faults) >= most_faults:
            break


def _done(file: Path | None, work: list[range], races: bool) -> dict[range, Totals]:
    """What the file says is done of this work. A chunk that another run ended elsewhere is not, nor a line in part."""
    wanted, found = {(each.start, len(each)): each for each in work}, dict[range, Totals]()
    for line in file.read_text().splitlines() if file is not None and file.exists() else ():
        with suppress(json.JSONDecodeError):
            entry = json.loads(line)
            part = Totals.from_dict(entry["totals"])
            each = wanted.get((entry["first"], part.programs))
            if each is not None and entry.get("races", False) == races:
                found[each] = part
    return found


def _append(file: Path, line: str) -> None:
    """Behind whatever a killed run has left."""
    whole = not file.exists() or file.read_bytes()[-1:] in (b"", b"\n")
    with file.open("a") as out:
        out.write(("" if whole else "\n") + line + "\n")


def _parts(work: list[range], brokers: Sequence[Brokers], races: bool) -> Iterator[tuple[int, Totals]]:
    context = multiprocessing.get_context("spawn")
    free = context.Queue()
    for each in brokers:
        free.put(each)
    pool = ProcessPoolExecutor(len(brokers), context, _begin, (free, races))
    try:
        for done in as_completed([pool.submit(_chunk, seeds) for seeds in work]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


_mine: list[Callable[[], Judge | RaceJudge]] = []
"""What makes this process's judge."""


def _begin(free: multiprocessing.Queue[Brokers], races: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the campaign ends its workers
    rabbitmqs, txha = free.get()
    _mine.append(lambda: RaceJudge.between(rabbitmqs[0], txha) if races else Judge(rabbitmqs, txha))


def _chunk(seeds: range) -> tuple[int, Totals]:
    totals, judge = Totals(), _mine[0]()
    for seed in seeds:
        totals.add(seed, judge.judge(seed))
    judge.close()
    return seeds.start, totals
