"""An operator who stops nodes and starts them with another release, under load, and upgrades all of them in the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.fault_kinds import restart
from tests.simulation.releases import Release

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SET_BACK_LEASES = 2
"""For so many lease times the operator leaves a node down that is to wait for less from then on (docs/upgrading.md)"""


class Upgrades:
    """``later``: what a node may be started with; ``last``: what all run in the end. ``changes``: how often it did.

    ``stopping``: no node is changed any more.
    """

    def __init__(self, cluster: Cluster, chance: random.Random, later: Sequence[Release], last: Release) -> None:
        self.changes = 0
        self.stopping = False
        self._cluster = cluster
        self._chance = chance
        self._later = later
        self._last = last

    def plan(self, seconds: float) -> None:
        """Some changes within so many seconds."""
        for _ in range(self._chance.choice((2, 3, 5))):
            self._cluster.world.after(self._chance.uniform(0.3, 0.3 + seconds), self._change)

    def _change(self) -> None:
        """Stop a node, and start it with another release, or the same, a moment later."""
        cluster, chance = self._cluster, self._chance
        name = chance.choice(sorted(cluster.disks))
        if self.stopping or name not in cluster.processes:
            return
        before = cluster.releases[name]
        cluster.releases[name] = release = chance.choice(self._later)
        self.changes += 1
        cluster.world.say("operator", f"stops {name}, to start it with {release.name} release")
        cluster.kill(name, power=False)
        pause = SET_BACK_LEASES * cluster.settings.lease_ttl if before.waits and not release.waits else 0.0
        cluster.world.after(chance.uniform(pause, pause + 0.3), lambda: restart(cluster, name))

    def upgrade_all(self) -> None:
        """One after the other."""
        self.stopping = True
        cluster = self._cluster
        for name in sorted(cluster.disks):
            if cluster.releases[name] is not self._last:
                cluster.releases[name] = self._last
                cluster.world.say("operator", f"upgrades {name}")
                if name in cluster.processes:
                    cluster.kill(name, power=False)
                cluster.world.run(cluster.world.now + 0.1)
