"""One node's disk and the store on it: the product's own log on fake files, and a base that a checkpoint changes whole.

The store's writers, one for the log and one for checkpoints, do one thing at a time, in order and in virtual time. A
crash finds each of them before, after, or in the middle of what it was doing.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recovery.log import Log
from recovery.segment import SegmentInfo
from recovery.store import Store
from recovery.worker import Report
from tests.simulation.fake_files import Crashed, FakeFiles
from tests.simulation.world import World
from txobserver.ids import Member
from txobserver.store import MemoryBase, StoreError

DIRECTORY = Path("log")
SEGMENT_BYTES = 3000


class Disk:
    """What survives the end of a process. ``slowness`` multiplies the time that everything takes."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        self.member = Member(name, f"{name}{incarnation}")
        self.world = world
        self.chance = world.chance(f"disk/{name}/{incarnation}")
        self.files = FakeFiles(lambda: world.now)
        self.base = MemoryBase()
        self.slowness = 1.0
        self.damaged = False

    def last_durable(self) -> tuple[int, int]:
        """(generation, sequence) that this disk certainly holds everything up to."""
        applied = self.base.meta.applied
        return max(self.files.last_durable(), (applied.generation, applied.sequence), key=lambda each: each[1])

    def holds(self, generation: int, sequence: int) -> bool:
        """Whether the event of this generation at this sequence is on this disk, in its log or in what it led to."""
        applied = self.base.meta.applied
        if not self.base.meta.resyncing and sequence <= applied.sequence:
            return any(
                start.generation == generation and start.sequence <= sequence for start in self.base.meta.history
            )
        return self.files.generation_at(sequence) == generation

    def latency(self) -> float:
        """How long the next operation takes: mostly a millisecond or two, at times much longer."""
        usual = self.chance.uniform(0.0003, 0.003)
        return min(1.0, self.slowness * (usual if self.chance.random() < 0.98 else usual * 40))


@dataclass
class Job:
    """Something that a writer is asked to do."""

    work: Callable[[], None]
    done: Report


class Writer:
    """Does jobs in order, each in its own time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._jobs: deque[Job] = deque()
        self._ended = False

    def submit(self, work: Callable[[], None], done: Report) -> None:
        """Do this after all before it."""
        self._jobs.append(Job(work, done))
        if len(self._jobs) == 1:
            self._disk.world.after(self._disk.latency(), self._finish)

    def crash(self) -> None:
        """The process ends: what is under way may be done in part."""
        self._ended = True
        chance = self._disk.chance
        if self._jobs and chance.random() < 0.7:
            self._disk.files.steps_to_crash = chance.randint(0, 4)
            with contextlib.suppress(Crashed, StoreError):
                self._jobs[0].work()
            self._disk.files.steps_to_crash = None

    def _finish(self) -> None:
        if self._ended:
            return
        job, outcome = self._jobs[0], None
        try:
            job.work()
        except StoreError as error:
            outcome = error
        self._jobs.popleft()
        if self._jobs:
            self._disk.world.after(self._disk.latency(), self._finish)
        job.done(outcome)


class SimStore(Store):
    """The product's store on such a disk. Raises StoreError where the log is damaged."""

    def __init__(self, disk: Disk, retention: float) -> None:
        self._writers = Writer(disk), Writer(disk)
        super().__init__(
            disk.member,
            disk.base,
            lambda applied: Log(DIRECTORY, self._describe, SEGMENT_BYTES, applied, disk.files),
            *self._writers,
            lambda: disk.world.now - retention,
        )

    def crash(self) -> None:
        """The process ends."""
        for writer in self._writers:
            writer.crash()

    def _describe(self, first: int) -> SegmentInfo:
        return SegmentInfo("simulated", *self.member, first, 0)
