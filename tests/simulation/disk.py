"""One node's disk and the store on it: the product's own log on fake files, and a base that a checkpoint changes whole.

The store works as ``recovery.store`` does: a writer for the log and one for checkpoints, each doing one thing at a
time, in order. A crash finds each of them before, after, or in the middle of what it was doing.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recovery.log import Log
from recovery.segment import SegmentInfo
from tests.simulation.fake_files import Crashed, FakeFiles
from tests.simulation.world import World
from txobserver.frames import Frame
from txobserver.ids import Member, Position
from txobserver.store import Checkpoint, MemoryBase, StoreError

DIRECTORY = Path("log")
SEGMENT_BYTES = 3000
Report = Callable[[StoreError | None], None]


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


class SimStore:
    """An open store. Raises StoreError where the log is damaged."""

    def __init__(self, disk: Disk, retention: float) -> None:
        self.disk = disk
        self.base = disk.base
        self.meta = disk.base.meta
        self.transactions = {tx: sorted(events.items()) for tx, events in disk.base.transactions.items()}
        self._retention = retention
        self._log = Log(DIRECTORY, self._describe, SEGMENT_BYTES, self.meta.applied, disk.files)
        self._writer = Writer(disk)
        self._keeper = Writer(disk)

    def suffix(self) -> Iterator[Frame]:
        """Frames of the log behind the last checkpoint."""
        return iter(()) if self.meta.resyncing else self._log.recover(self.meta.applied)

    @property
    def first(self) -> int:
        """First sequence that the log still holds."""
        return self._log.first

    def append(self, frame: Frame, done: Report) -> None:
        """Write and sync a frame."""
        self._writer.submit(lambda: self._log.append([frame]), done)

    def truncate(self, last: int, tail: Position, done: Report) -> None:
        """Cut the log."""
        self._writer.submit(lambda: self._log.truncate(last, tail), done)

    def reset(self, before: Position, done: Report) -> None:
        """Begin the log anew."""
        self._writer.submit(lambda: self._log.reset(before), done)

    def checkpoint(self, checkpoint: Checkpoint, done: Report) -> None:
        """Bring the base forward, then reclaim."""
        self._keeper.submit(lambda: self._checkpoint(checkpoint), done)

    def read(self, first: int, max_bytes: int) -> list[Frame]:
        """Frames from the log."""
        return self._log.read(first, max_bytes)

    def crash(self) -> None:
        """The process ends."""
        self._writer.crash()
        self._keeper.crash()

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        self.base.write(checkpoint)
        if not checkpoint.meta.resyncing:
            self._log.reclaim(checkpoint.meta.applied.sequence, self.disk.world.now - self._retention)

    def _describe(self, first: int) -> SegmentInfo:
        return SegmentInfo("simulated", *self.disk.member, first, 0)
