"""The queue state in memory, as LMDB keeps it: what a checkpoint, a failure, a kill and a power cut leave of it.

A checkpoint is there as a whole or not at all. LMDB syncs its pages before it writes the head page that names them.
So a checkpoint that fails, or whose process is killed, has left nothing; or its head page is in memory alone: the next
process reads that checkpoint, and a power cut takes it back or not. The next checkpoint makes it durable, as does
``confirm``, since both write a head page of their own behind a sync of the file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.simulation.fake_files import Crashed
from txobserver.ports.store import Asked, Checkpoint, Entry, MemoryBase, Page, StoreDamaged, StoreError


class FakeState(MemoryBase):
    """``fails``: the disk takes no checkpoint. ``dying``: the process ends while the next one is written.
    ``damaged``: no page of a queue can be read.

    ``syncs``: as LMDB does it unless it is told not to. Without, no page is on the disk for certain, and a power cut
    takes any: the head page with what it names, or only what it names.
    """

    syncs = True

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.fails = False
        self.dying = False
        self.damaged = False
        self._chance = chance
        self._before: MemoryBase | None = None

    @property
    def durable(self) -> MemoryBase:
        """What is on the disk for certain; what is read may be one checkpoint further."""
        return self._before or self

    def get(self, queue: int, offset: int) -> Entry | None:
        """As ever, if it can be read."""
        self._read()
        return super().get(queue, offset)

    def read(self, asked: Asked) -> Page:
        """As ever, if it can be read."""
        self._read()
        return super().read(asked)

    def holds(self, queue: int, offset: int) -> bool:
        """As ever, if it can be read."""
        self._read()
        return super().holds(queue, offset)

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """As ever, if it can be read."""
        self._read()
        return super().page(queue, after, limit)

    def ids(self, queue: int) -> Iterator[tuple[int, int]]:
        """As ever, if it can be read."""
        self._read()
        return super().ids(queue)

    def _read(self) -> None:
        if self.damaged:
            raise StoreDamaged("the queue state is damaged: a page cannot be read")

    def write(self, checkpoint: Checkpoint) -> None:
        """As ever, if nothing happens meanwhile."""
        ends_with = self._chance.randrange(3) if self.dying else self._chance.randrange(2) if self.fails else 2
        if ends_with == 1 or (ends_with == 2 and not self.syncs):
            self._before = self._before or _copy(self)
        if ends_with:
            super().write(checkpoint)
        if ends_with < 2:
            if self.dying:
                raise Crashed
            raise self._failure()
        if self.syncs:
            self._before = None

    def confirm(self, log_begun: bool) -> None:
        """What is read is on the disk from now on."""
        if self.fails:
            raise self._failure()
        super().confirm(log_begun)
        if self.syncs:
            self._before = None

    def crash(self, chance: random.Random) -> None:
        """The machine goes down."""
        if self._before is not None and not self.syncs and chance.random() < 0.5:
            for queue in sorted(self.queues):  # pages that the head page names
                there = self.queues[queue].items()
                self.queues[queue] = {offset: each for offset, each in there if chance.random() < 0.8}
        elif self._before is not None and chance.random() < 0.5:
            self.__dict__.update(_copy(self._before).__dict__)
        self._before = None

    @staticmethod
    def _failure() -> StoreError:
        return StoreError("the queue state failed: Input/output error")


def _copy(base: MemoryBase) -> MemoryBase:
    copy = MemoryBase()
    copy.meta, copy.log_begun = base.meta, base.log_begun
    copy.queues = {queue: dict(content) for queue, content in base.queues.items()}
    copy.transactions = {tx: dict(events) for tx, events in base.transactions.items()}
    copy.remembered = dict(base.remembered)
    return copy
