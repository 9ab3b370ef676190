"""One seed of a cluster whose nodes run different releases: each is upgraded, and set back, under load and faults.

The schedule of faults is that of the seed, and so are the clients. An operator who stops and starts nodes with another
release comes to that, and upgrades all of them before the run ends: then what only the newer release knows is done.
"""

from __future__ import annotations

import random
from dataclasses import replace
from unittest.mock import patch

from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from ha.settings import Settings
from tests.simulation.client_link import ClientLink
from tests.simulation.clients import Client
from tests.simulation.faults import Fault, Faults
from tests.simulation.releases import FEATURE, NEWER, OLDER, OLDEST, YOUNG, Release
from tests.simulation.run import LOAD_SECONDS, Result, Run
from tests.simulation.upgrades import Upgrades
from txobserver.configuration import FEATURE_OF

FIRST = (NEWER, OLDER)
"""What a node may run at first"""
LATER = (NEWER, NEWER, OLDER, OLDER, OLDEST)
"""What the operator may start it with"""
UPGRADED_SECONDS = 20.0


class MixedRun(Run):
    """As ``Run``, but for the releases."""

    def __init__(self, seed: int, schedule: list[Fault] | None = None, transcript: bool = False) -> None:
        self._operator = random.Random(f"{seed}/releases")
        super().__init__(seed, schedule, transcript)
        self.upgrades = Upgrades(self.cluster, self._operator, LATER, NEWER)
        self.upgrades.plan(LOAD_SECONDS)

    def adapted(self, settings: Settings) -> Settings:
        """Nodes of the older releases wait for a shorter lease."""
        longer = self._operator.choice((1, 2, 4)) * settings.lease_ttl
        return replace(settings, lease_ttl=longer, lease_before=settings.lease_ttl)

    def releases(self, names: list[str]) -> dict[str, Release]:
        """What each node runs at first."""
        return {name: self._operator.choice(FIRST) for name in names}

    def run(self) -> Result:
        """All of it."""
        with patch.dict(FEATURE_OF, {YOUNG: FEATURE}):
            return super().run()

    def _heal(self, faults: Faults) -> None:
        """All are upgraded first, one after the other; in the end, what only the newer release knows is done (P12)."""
        self.upgrades.upgrade_all()
        super()._heal(faults)
        asked = Upgraded(self.cluster, 0)
        self._until(lambda: asked.told, UPGRADED_SECONDS, "exchange, though every node knows them now")
        asked.stopping = True


class Upgraded(Client):
    """Asks for what only the newer release knows, until it is done."""

    kind = "upgraded"
    told = False

    def connected(self, link: ClientLink) -> None:
        link.queues.declare_exchange(ExchangeDeclare("young", "fanout", True, False))
        link.queues.count("orders", self._done)

    def _done(self) -> None:
        self.told = True
