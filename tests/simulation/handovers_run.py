"""One seed of a cluster that is handed over again and again under load: ``promote`` and stops in good order, beside
faults that lose nothing."""

from __future__ import annotations

from dataclasses import replace

from ha.membership.node_state import ACTIVE
from ha.settings import Settings
from tests.simulation.clients import Client, Consumer, Counter, Feeder, Keeper, Worker
from tests.simulation.coordinators import Coordinator
from tests.simulation.fault_kinds import restart
from tests.simulation.faults import Fault, Faults, independent
from tests.simulation.handover_checkers import Drained
from tests.simulation.run import LOAD_SECONDS, Result, Run

KINDS: tuple[tuple[type[Client], int], ...] = (
    (Feeder, 3),
    (Worker, 6),
    (Consumer, 3),
    (Counter, 1),
    (Keeper, 2),
    (Coordinator, 1),
)
EVERY = (0.1, 0.4)
"""Seconds between handovers"""
AWAY = (0.05, 0.3)
"""Seconds that a node is stopped"""


class HandoversRun(Run):
    """As ``Run``. ``handovers``: how often a primary was asked to hand over. In half of the seeds nothing else strikes.

    ``drained``: the checker, which counts what clients were told.
    """

    kinds = KINDS

    def __init__(self, seed: int, schedule: list[Fault] | None = None, transcript: bool = False) -> None:
        self.handovers = 0
        self._over = False
        super().__init__(seed, schedule, transcript)
        self._chance = self.world.chance("handovers")
        self.drained = next(each for each in self.cluster.truth.checkers if isinstance(each, Drained))

    def drawn(self) -> list[Fault]:
        """Those that lose nothing."""
        alone = self.world.chance("handovers/alone").random() < 0.5
        return [] if alone else independent(self.world, LOAD_SECONDS)

    def adapted(self, settings: Settings) -> Settings:
        """Drains that have time, and some that have none."""
        return replace(settings, drain_seconds=self.world.chance("handovers/drain").choice((0.0, 0.02, 0.2, 1.0, 1.0)))

    def _declare(self) -> None:
        super()._declare()
        self.cluster.stalls = self.world.chance("handovers/stalls")
        self._later()

    def _heal(self, faults: Faults) -> None:
        self._over = True
        super()._heal(faults)

    def _later(self) -> None:
        if not self._over:
            self.world.after(self._chance.uniform(*EVERY), self._hand_over)

    def _hand_over(self) -> None:
        """An operator promotes a backup, or stops the primary, which comes back."""
        self._later()
        cluster, chance = self.cluster, self._chance
        leads = [each for each in cluster.running() if each.core.state == ACTIVE and not each.paused]
        if not leads or self._over:
            return
        self.handovers += 1
        if chance.random() < 0.4:
            primary = leads[0]
            self.world.say("operator", f"SIGTERM of {primary.name}")
            primary.leave()
            self.world.after(chance.uniform(*AWAY), lambda: restart(cluster, primary.name))
            return
        ready = [each for each in cluster.running() if each.core.state == "ready" and not each.paused]
        if ready:
            chosen = chance.choice(ready)
            self.world.say("operator", f"promote {chosen.name}")
            chosen.operate(lambda: chosen.core.promote(False))

    def _counted(self, result: Result, faults: Faults | None) -> Result:
        counted = super()._counted(result, faults)
        counted.hits += self.handovers
        return counted
