"""The coordination store: one record, and everything between it and a node that asks.

A request and its answer take time, and each may be lost or late: a change whose answer never came may have landed, or
land later, also when its sender is gone. It stalls for everybody when a fault says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ha.coordination import CasConflict, CoordinationError, MemoryCoordination, Record
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.process import Process

LATENCY = (0.0005, 0.01)
TIMEOUT = 0.5
Outcome = Record | CasConflict | CoordinationError


class SimCoordination:
    """``stalled_until`` and ``unreliable`` are set by faults; ``cut_off`` names nodes that cannot reach it."""

    def __init__(self, world: World, on_change: Callable[[Record], None]) -> None:
        self.store = MemoryCoordination()
        self.stalled_until = 0.0
        self.unreliable = 0.0
        self.cut_off: set[str] = set()
        self.under_way = 0
        self._world = world
        self._chance = world.chance("coordination")
        self._on_change = on_change

    @property
    def record(self) -> Record | None:
        """The record as it is."""
        return self.store.record

    def read(self, process: Process, done: Callable[[Record | None], None]) -> None:
        """The record, some time from now; no answer at all where the store cannot be reached."""
        if process.name not in self.cut_off and self._world.now >= self.stalled_until:

            def found() -> None:
                record = self.store.read()
                self._world.after(self._delay(), lambda: done(record))

            self._world.after(self._delay(), found)

    def compare_and_set(self, process: Process, expected: int, record: object, done: Callable[[Outcome], None]) -> None:
        """The outcome, or a CoordinationError after a timeout."""
        assert isinstance(record, Record)
        answered = False

        def answer(outcome: Outcome) -> None:
            nonlocal answered
            if not answered:
                answered = True
                done(outcome)

        reaches = process.name not in self.cut_off
        lost = self._chance.random() < self.unreliable
        late = self._chance.random() < 0.5
        if reaches and not (lost and not late and self._chance.random() < 0.5):
            delay = max(self._delay(), self.stalled_until - self._world.now)
            delay += self._chance.uniform(0, 1.5) if lost and late else 0.0
            self.under_way += 1
            self._world.after(delay, lambda: self._land(expected, record, None if lost else answer))
        timeout = CoordinationError("no answer in time")
        self._world.after(TIMEOUT, lambda: answer(timeout))

    def _land(self, expected: int, record: Record, answer: Callable[[Outcome], None] | None) -> None:
        self.under_way -= 1
        outcome: Outcome
        try:
            outcome = self.store.compare_and_set(expected, record)
            self._on_change(outcome)
        except CasConflict as conflict:
            outcome = conflict
        if answer is not None:
            self._world.after(self._delay(), lambda: answer(outcome))

    def _delay(self) -> float:
        return self._chance.uniform(*LATENCY)
