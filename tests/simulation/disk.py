"""One node's disk and the store on it: the product's own log on fake files, and a base that a checkpoint changes whole.

The store's writers, one for the log and one for checkpoints, and its reader of queues do one thing at a time, in order,
each in its own virtual time. A crash finds each writer before, after, or in the middle of what it was doing.
"""

from __future__ import annotations

import contextlib
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from broker_plugin.guard import Guard
from recovery.store.groups import encode_group_header
from recovery.store.log import Log
from recovery.store.retention import retention_of
from recovery.store.segment import SegmentInfo
from recovery.store.store import Store
from recovery.store.worker import Job, Report, carry_out
from tests.simulation.fake_files import Crashed, FakeFiles
from tests.simulation.fake_state import FakeState
from tests.simulation.loop import MachineClock, SimLoop
from tests.simulation.machine import Machine
from tests.simulation.world import World
from txobserver.ids import Member, Position
from txobserver.ports.store import Checkpoint, StoreError

DIRECTORY = Path("log")
STEPS = 0, 1, 1, 1, 2, 3, 4, 5, 6
"""File operations of what is under way that a crash lets happen; of an append, 1: all is written, nothing synced"""
SEGMENT_BYTES = 6000
SPEEDS = ((0.0003, 0.003), (0.0003, 0.003), (0.005, 0.05), (0.05, 0.4))
"""Shortest and longest time that a checkpoint takes, of the machines of one run"""
SLOWEST = 0.7, 1.5
"""Of a machine that is slower than a backup may be silent, also when the faults have ended"""
LONGEST = 1.0
"""Seconds that an operation of the log takes at most, however slow the disk is"""


class WatchedFiles(FakeFiles):
    """``undone`` counts what may have taken away something that was durable."""

    undone = 0

    def crash(self, chance: random.Random) -> None:
        self.undone += 1
        super().crash(chance)

    def truncate(self, descriptor: int, size: int) -> None:
        self.undone += 1
        super().truncate(descriptor, size)

    def replace(self, path: Path, by: Path) -> None:
        self.undone += 1
        super().replace(path, by)

    def remove(self, path: Path) -> None:
        self.undone += 1
        super().remove(path)


class Disk:
    """What survives the end of a process. ``slowness`` multiplies the time that the log takes, ``checkpoint_seconds``
    are the shortest and the longest time that a checkpoint takes."""

    def __init__(
        self, world: World, name: str, incarnation: int, clock: MachineClock, checkpoint_seconds: tuple[float, float]
    ) -> None:
        self.member = Member(name, f"{name}{incarnation}")
        self.world = world
        self.clock = clock
        self.chance = world.chance(f"disk/{name}/{incarnation}")
        self.files = WatchedFiles(lambda: clock.wall_ms() / 1000)
        self.base = FakeState(world.chance(f"state/{name}/{incarnation}"))
        self.reads = world.chance(f"reads/{name}/{incarnation}")
        self.slowness = 1.0
        self.checkpoint_seconds = checkpoint_seconds
        self.damaged = False
        self.machine = Machine()
        self._whole = -1, Position(0, 0), 0

    @property
    def fails(self) -> bool:
        """Whether its node will end as soon as it asks something of it."""
        return self.files.full or self.files.sync_fails or self.files.read_fails or self.base.fails or self.base.damaged

    def last_durable(self) -> tuple[int, int]:
        """(generation, sequence) of the last event that is on this disk."""
        applied = self.base.durable.meta.applied
        return max(self.files.last_durable(), (applied.generation, applied.sequence), key=lambda each: each[1])

    def holds(self, generation: int, sequence: int) -> bool:
        """Whether this disk leads to the event of this generation at this sequence: by its checkpoint, and by every
        event of the log behind that."""
        meta = self.base.durable.meta
        if meta.resyncing:
            return False
        if sequence <= meta.applied.sequence:
            starts = [start.sequence for start in meta.history]
            at = bisect_right(starts, sequence) - 1
            return at >= 0 and meta.history[at].generation == generation
        return self.files.generation_at(sequence) == generation and self._is_whole(meta.applied, sequence)

    def _is_whole(self, applied: Position, sequence: int) -> bool:
        """Whether the log holds every event from the checkpoint up to there; what has been looked at is remembered."""
        undone, since, known = self._whole
        if undone != self.files.undone or since != applied or known < applied.sequence:
            known = applied.sequence
        while known < sequence and self.files.generation_at(known + 1) is not None:
            known += 1
        self._whole = self.files.undone, applied, known
        return known >= sequence

    def power_cut(self) -> None:
        """What is not certainly on the disk may be gone."""
        self.files.crash(self.chance)
        self.base.crash(self.chance)
        self.machine.power_cut()

    def log_latency(self) -> float:
        """How long the log's next operation takes: mostly a millisecond or two, at times much longer."""
        usual = self.chance.uniform(0.0003, 0.003)
        return min(LONGEST, self.slowness * (usual if self.chance.random() < 0.98 else usual * 40))

    def checkpoint_latency(self) -> float:
        """How long the next checkpoint takes."""
        return self.chance.uniform(*self.checkpoint_seconds)

    def read_latency(self) -> float:
        """How long half of a page of a queue takes: mostly a millisecond, at times longer than a short lease."""
        usual = self.reads.uniform(0.0002, 0.002)
        return usual if self.reads.random() < 0.9 else usual * 300


class Task(NamedTuple):
    """Something that a writer is asked to do."""

    job: Job
    done: Report


class Writer:
    """Carries jobs out in order, each in its own time, as the thread of ``recovery.store.worker`` does."""

    def __init__(self, loop: SimLoop, guard: Guard, disk: Disk, latency: Callable[[], float]) -> None:
        self._loop = loop
        self._guard = guard
        self._disk = disk
        self._latency = latency
        self._tasks: deque[Task] = deque()
        self._began = 0.0

    def submit(self, job: Job, done: Report) -> None:
        """Do this after all before it."""
        self._tasks.append(Task(job, done))
        if len(self._tasks) == 1:
            self._begin()

    def _begin(self) -> None:
        self._began = self._disk.world.now
        self._loop.thread(self._latency(), self._finish)

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return bool(self._tasks)

    def busy_since_before(self, moment: float) -> bool:
        """Whether what is under way was begun by then."""
        return self.busy and self._began <= moment

    def crash(self) -> None:
        """The process ends: what is under way may be done in part."""
        chance = self._disk.chance
        if self._tasks and chance.random() < 0.7:
            self._disk.files.steps_to_crash = chance.choice(STEPS)
            self._disk.base.dying = True
            with contextlib.suppress(Crashed):
                carry_out(self._tasks[0].job)
            self._disk.files.steps_to_crash = None
            self._disk.base.dying = False
        self._tasks.clear()

    def _finish(self) -> None:
        task = self._tasks.popleft()
        outcome = carry_out(task.job)
        if self._tasks:
            self._begin()
        self._guard.call_soon_threadsafe(lambda: task.done(outcome))


class Reader(Writer):
    """Reads, and so leaves nothing behind. What a page shows is as of some moment while it is read."""

    def crash(self) -> None:
        """The process ends."""
        self._tasks.clear()

    def _begin(self) -> None:
        self._began = self._disk.world.now
        first, second = self._latency(), self._latency()
        self._loop.thread(first, lambda: self._look(second))

    def _look(self, seconds: float) -> None:
        if self._tasks:
            outcome = carry_out(self._tasks[0].job)
            self._loop.thread(seconds, lambda: self._give(outcome))

    def _give(self, outcome: StoreError | None) -> None:
        if self._tasks:
            task = self._tasks.popleft()
            if self._tasks:
                self._begin()
            self._guard.call_soon_threadsafe(lambda: task.done(outcome))


class SimStore(Store):
    """The product's store on such a disk. Raises StoreError where the log is damaged.

    ``undoing`` is told when something that the store holds is about to go, and what stays.
    """

    def __init__(
        self, disk: Disk, loop: SimLoop, guard: Guard, retention: float, undoing: Callable[[int], None]
    ) -> None:
        self._undoing = undoing
        self._files = disk.files
        self._cuts = 0
        self._writers = Writer(loop, guard, disk, disk.log_latency), Writer(loop, guard, disk, disk.checkpoint_latency)
        self._queues = Reader(loop, guard, disk, disk.read_latency)
        super().__init__(
            disk.member,
            disk.base,
            lambda applied: Log(DIRECTORY, self._describe, SEGMENT_BYTES, applied, disk.files),
            *self._writers,
            self._queues,
            retention_of(
                DIRECTORY, retention, lambda: disk.clock.wall_ms() / 1000, disk.clock.now, disk.files
            ).removable_before,
        )
        disk.files.coming = self._under_way

    def _under_way(self) -> bytes:
        """What the log's writer appends just now. Behind a cut it comes later, and at a segment's end elsewhere."""
        last = self._files.entries[max(self._files.entries)]
        if self._cuts or not self._writers[0].busy or len(last.data) >= SEGMENT_BYTES:
            return b""
        group = [frame.data for frame in self._appends]
        return b"".join((encode_group_header(len(last.data), group), *group))

    def _cutting(self, done: Report) -> Report:
        self._cuts += 1

        def cut(error: StoreError | None) -> None:
            self._cuts -= 1
            done(error)

        return cut

    @property
    def appending(self) -> int:
        """How many bytes are being written to the log just now."""
        return len(self._under_way())

    @property
    def writes_checkpoint(self) -> bool:
        """Whether a checkpoint is being written just now."""
        return self._writers[1].busy

    def writes_since_before(self, moment: float) -> bool:
        """Whether something is being written that was begun by then."""
        return any(each.busy_since_before(moment) for each in self._writers)

    def truncate(self, last: int, tail: Position, done: Report) -> None:
        self._undoing(last)
        super().truncate(last, tail, self._cutting(done))

    def reset(self, before: Position, done: Report) -> None:
        self._undoing(0)
        super().reset(before, self._cutting(done))

    def checkpoint(self, checkpoint: Checkpoint, done: Report) -> None:
        if checkpoint.meta.resyncing:
            self._undoing(0)
        super().checkpoint(checkpoint, done)

    def crash(self) -> None:
        """The process ends."""
        self._files.coming = None
        for each in (*self._writers, self._queues):
            each.crash()

    def _describe(self, first: int) -> SegmentInfo:
        return SegmentInfo("simulated", *self.member, first, 0)


