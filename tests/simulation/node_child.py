"""The coordination process of a simulated node: it outlives the node, and may give up the lease that the node had.

What it knows and does is the product's (``Renewer``). It renews nothing unasked: the node's turns are short here. After
the end of its node it comes to give the lease up soon, late, or never, at times by what it knew before its last change.
A node that is only stopped is looked at as well.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

from broker_plugin.coordination.renewer import Reign, Renewer
from ha.membership.record import Record, Snapshot, Waiter
from ha.membership.watchdog import Renewals
from tests.simulation.coordination import SimCoordination

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster

SOON, LATE = (0.002, 0.05), (0.0, 2.0)


class SimNode(Protocol):
    """The node whose process this is. ``alive``: also while it is stopped."""

    name: str
    alive: bool
    world: Cluster


class SimChild:
    """Implements ``ha.membership.record.Coordination`` for ``process``, by what all nodes' ``store`` is."""

    def __init__(self, process: SimNode, store: SimCoordination, chance: random.Random) -> None:
        self._process = process
        self._store = store
        self._chance = chance
        self._reigns: list[Reign] = []
        self.renewer = Renewer(store, self, Renewals(1e9, 1e9), lambda: process.world.now)

    # -- what the node asks for

    def read(self) -> Record | None:
        return self._store.read()

    def compare_and_set(self, expected: int, record: Record) -> Record:
        stored = self.renewer.compare_and_set(expected, record)
        if self.renewer._reign is not None:
            self._reigns.append(self.renewer._reign)
        return stored

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        return self._store.watch(after, seconds, waiter)

    def snapshot(self) -> Snapshot:
        return self._store.snapshot()

    def give_up(self) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """Nothing is held."""

    # -- what it knows of the node

    def turned_at(self, generation: int) -> float:
        """No turns are shown."""
        return float("-inf")

    def renewed(self, generation: int, begun_at: float) -> None:
        """Nothing is renewed here."""

    def gone(self) -> bool:
        """As ``NodeLife.gone``: one that is stopped is there."""
        return not self._process.alive

    def look_later(self) -> None:
        """The node has ended, or is stopped: look after it once, if this process still runs."""
        how = self._chance.choice(("never", "soon", "soon", "late", "stale"))
        if how == "never":
            return
        if how == "stale" and len(self._reigns) > 1:
            self.renewer._reign = self._chance.choice(self._reigns[:-1])
        seconds = self._chance.uniform(*(SOON if how == "soon" else LATE))
        self._process.world.after(seconds, self._look)

    def _look(self) -> None:
        name = self._process.name
        if self.gone() and name not in self._store.cut_off | self._store.read_only:
            self.renewer.release()
