"""What is measured while an attack runs, and what must not have happened."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from python_tests.harness.memory import anonymous_bytes
from python_tests.suites.attacks.victim import COMMITTED

MIB = 1 << 20
EVERY = 0.25
LONGEST_PAUSE = 1.0
"""Seconds, the lease: a pause above it is harm."""
MOST_KEPT = 100 * MIB
"""Bytes of memory that a node may have more than before, a while after an attack."""


class Commit(NamedTuple):
    """One transaction of the well-behaved client. ``began``: wall clock. ``error``: empty if it was committed."""

    began: float
    took: float
    error: str


def read_commits(text: str) -> list[Commit]:
    """The victim's file; a line that is being written is left out."""
    found = []
    for line in text.split("\n")[:-1]:
        began, took, said = line.split(" ", 2)
        found.append(Commit(float(began), float(took), "" if said == COMMITTED else said))
    return found


@dataclass
class Waits:
    """How the victim fared, in seconds. ``longest``: the longest time without an answered commit."""

    commits: int = 0
    failed: list[str] = field(default_factory=list)
    p50: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


def waits(commits: Sequence[Commit], begin: float, end: float) -> Waits:
    """Of those that began in between, and of the pauses between their answers; the last answer may come later."""
    those = [each for each in commits if begin <= each.began < end]
    if not those:
        return Waits(longest=end - begin)
    took = sorted(each.took for each in those)
    answers = [begin, *(each.began + each.took for each in those if not each.error)]
    answers.append(max(end, answers[-1]))
    longest = max(later - earlier for earlier, later in pairwise(answers))
    failed = [each.error for each in those if each.error]
    return Waits(len(those), failed, quantile(took, 0.5), quantile(took, 0.99), longest)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in order: the smallest that at least this share of them does not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


@dataclass
class Memory:
    """Anonymous bytes of one process."""

    before: int = 0
    peak: int = 0
    after: int = 0


class MemorySampler(threading.Thread):
    """Looks at processes again and again; a context manager."""

    def __init__(self, pids: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._pids = pids
        self._over = threading.Event()
        self.found = {name: Memory(*[_bytes(pid)] * 3) for name, pid in pids.items()}

    def __enter__(self) -> MemorySampler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Look, until it is over."""
        while not self._over.wait(EVERY):
            self.look()

    def look(self) -> None:
        """Once."""
        for name, pid in self._pids.items():
            memory = self.found[name]
            memory.after = _bytes(pid)
            memory.peak = max(memory.peak, memory.after)

    def given_back(self, seconds: float) -> bool:
        """Whether each process comes back to what it had, and at most MOST_KEPT more, within so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            if all(memory.after - memory.before <= MOST_KEPT for memory in self.found.values()):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(EVERY)


def _bytes(pid: int) -> int:
    try:
        return anonymous_bytes(pid)
    except OSError:
        return 0


class Starvation:
    """How much of the time the main threads of processes waited for a processor that others had."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._before = {name: _waited(pid) for name, pid in pids.items()}

    def share(self) -> float:
        """Since this was made, of the one that waited longest: 0 for not at all, 1 for always."""
        wall = time.monotonic() - self._began
        waited = [_waited(pid) - self._before[name] for name, pid in self._pids.items()]
        return min(1.0, max(0.0, max(waited, default=0.0) / wall))


def _waited(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class LogEnd:
    """Where the log of a node ended; ``since`` is what it has said since then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size

    def since(self) -> str:
        """The lines."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            return file.read().decode(errors="replace")


class Logged(NamedTuple):
    """What nodes have logged. ``turns``: the processor time of each turn that took too long, and most of it in what."""

    turns: list[tuple[float, str]]
    traces: list[str]


def logged(text: str) -> Logged:
    """From lines of JSON, and what else stands between them, as an interpreter writes it that fails."""
    turns, traces = [], []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            if line.startswith("Traceback"):
                traces.append(line)
            continue
        if entry.get("event") == "long_turn":
            turns.append((float(entry["fields"]["seconds"]), str(entry["fields"]["call"])))
        if "trace" in entry or "Traceback" in entry.get("text", ""):
            traces.append(str(entry["text"]))
    return Logged(turns, traces)


@dataclass
class Found:
    """What one attack has come to. ``said``: in the attack's words. ``faults``: what must not be. ``starved``: the
    share of its time in which the node that had to wait longest for a processor waited for one.
    """

    attack: str
    said: str = ""
    seconds: float = 0.0
    starved: float = 0.0
    waits: Waits = field(default_factory=Waits)
    memory: dict[str, Memory] = field(default_factory=dict)
    turns: list[tuple[float, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        memory = {name: vars(each) for name, each in self.memory.items()}
        return {**vars(self), "waits": vars(self.waits), "memory": memory}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Found:
        """Of JSON that ``as_dict`` has made. Raises TypeError and KeyError for anything else."""
        memory = {name: Memory(**each) for name, each in found["memory"].items()}
        turns = [(float(seconds), str(call)) for seconds, call in found["turns"]]
        return cls(**{**found, "waits": Waits(**found["waits"]), "memory": memory, "turns": turns})


def judged_waits(found: Waits, starved: float) -> Iterable[str]:
    """What the victim must not have met. Of a pause counts what is left if the share ``starved`` is taken off: on a
    machine that others use, a node waits for a processor, and its clients with it.
    """
    if not found.commits:
        yield "the well-behaved client began no transaction"
    if found.failed:
        yield f"{len(found.failed)} commits failed, first: {found.failed[0][:120]}"
    if found.longest * (1 - starved) > LONGEST_PAUSE:
        yield f"no commit was answered for {found.longest:.2f} s, {starved:.0%} of it for want of a processor"


def judged_memory(found: dict[str, Memory]) -> Iterable[str]:
    """What nodes must not have kept."""
    for name, memory in found.items():
        if memory.after - memory.before > MOST_KEPT:
            yield f"{name} keeps {(memory.after - memory.before) / MIB:.0f} MiB more than before"

