"""The coordination store: one record, and everything between it and a node that asks.

A request and its answer take time, and each may be lost or late: a change whose answer never came may have landed, or
land later, also when its sender is gone. It stalls for all nodes when a fault says so. Changes may be made twice, as by
a client of a store that tries again; the second time they meet what the first has stored.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.membership.record import CoordinationError, MemoryCoordination, Record
from tests.simulation.calls import Plan
from tests.simulation.world import World

LATENCY = (0.0005, 0.01)
TIMEOUT = 0.5


class SimCoordination(MemoryCoordination):
    """``stalled_until``, ``slowness``, ``unreliable`` and ``repeating`` are set by faults; ``cut_off`` names nodes that
    cannot reach it, ``read_only`` those that can only read, ``late`` by how many seconds a node's answers are late.
    ``valid``: the record as the cluster has made it, also while it is ``gone``: lost, or replaced by an older copy."""

    def __init__(self, world: World, on_change: Callable[[Record], None]) -> None:
        super().__init__()
        self.stalled_until = 0.0
        self.unreliable = 0.0
        self.repeating = 0.0
        self.slowness = 1.0
        self.gone = False
        self.valid: Record | None = None
        self.history: list[Record] = []
        self.cut_off: set[str] = set()
        self.read_only: set[str] = set()
        self.late: dict[str, float] = {}
        self._landing: list[float] = []
        self._world = world
        self._chance = world.chance("coordination")
        self._tells = world.chance("coordination/tells").random() < 0.5
        self._watching: list[Callable[[], None]] = []
        self._on_change = on_change

    @property
    def under_way(self) -> bool:
        """Whether a change may still land."""
        now = self._world.now
        self._landing = [each for each in self._landing if each >= now]
        return bool(self._landing)

    def compare_and_set(self, expected: int, record: Record) -> Record:
        stored = super().compare_and_set(expected, record)
        if not self.gone:  # what is changed in an old copy is none of the cluster's doing
            self._changed(stored)
        return stored

    def write(self, record: Record) -> None:
        """An operator founds the cluster, or recovers it."""
        self.record, self.gone = record, False
        self.history.clear()
        self._changed(record)

    def lose(self, left: Record | None) -> None:
        """The record is gone; an older copy may stand in its place."""
        self.record, self.gone = left, True

    def on_wait(self, end: Callable[[], None]) -> None:
        """A node watches the record. In half of the seeds the store says by itself that it has changed."""
        if self._tells:
            self._watching.append(end)

    def _changed(self, record: Record) -> None:
        watching, self._watching = self._watching, []
        for end in watching:
            end()
        self.valid = record
        self.history.append(record)
        self._on_change(record)

    def plan(self, node: str, change: bool) -> Plan:
        """What becomes of a call of this node's."""
        fails = node in self.cut_off or (change and node in self.read_only)
        lands, answered = ((), False) if fails else self._landings(change)
        if change and lands:
            self._landing.append(self._world.now + lands[-1])
        answer = self._delay() + self.late.get(node, 0.0) if answered else None
        return Plan(lands, answer, TIMEOUT, CoordinationError("no answer in time"))

    def _landings(self, change: bool) -> tuple[tuple[float, ...], bool]:
        """When it is carried out, and whether that is answered."""
        chance = self._chance
        delay = max(self._delay(), self.stalled_until - self._world.now)
        if not change:
            return (delay,), True
        lost = chance.random() < self.unreliable
        late = chance.random() < 0.5
        if lost and not late and chance.random() < 0.5:
            return (), False
        delay += chance.uniform(0, 1.5) if lost and late else 0.0
        if chance.random() < self.repeating:
            return (delay, delay + self._delay()), not lost
        return (delay,), not lost

    def _delay(self) -> float:
        return self._chance.uniform(*LATENCY) * self.slowness
