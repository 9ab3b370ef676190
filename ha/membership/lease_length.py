"""LeaseLength: for how long a primary counts on its lease, where another node may wait for less before it stands.

A candidate waits for its own lease, so a primary may count on no longer one than any node waits for that could stand. A
node of an earlier version waits for ``Settings.lease_before``, where this one waits for ``lease_ttl``
(``lease_beside_an_earlier_version``). Whether a node waits for the longer one it says as it greets (``LEASE_FEATURE``).

One that did not say so counts until it has been reached again and does, ready or not: an operator may force it
(``earlier_version_is_forced_to_stand``). Of a member of the ready set that cannot be reached it holds for some leases
what was known: it leaves the set meanwhile, and who sets a node back to an earlier version leaves it down for longer
(docs/upgrading.md). Of a member that was never reached nothing is known.

One object for all of a node's life: a new primary goes by what it has heard as a backup
(``new_primary_knows_who_waits``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from ha.messages.greeting import LEASE_FEATURE
from ha.settings import Settings
from txobserver.ids import Member

HELD_LEASES = 1.5
"""For so many leases it holds of a member that cannot be reached that it waits for a whole one"""
RENEWALS = 5
"""In the shorter lease, at least: as many as an earlier version makes in it by default"""


class LeaseLength:
    """What one node knows of the others. ``features``: of each peer that can be reached, what both sides know."""

    def __init__(self, settings: Settings, features: Mapping[str, Collection[str]]) -> None:
        self._settings = settings
        self._features = features
        self._earlier: set[str] = set()
        self._known_at: dict[str, float] = {}

    def linked(self, node: str, known: Collection[str]) -> None:
        """A peer can be reached, and has said what it knows."""
        if LEASE_FEATURE in known:
            self._earlier.discard(node)
        else:
            self._earlier.add(node)
            self._known_at.pop(node, None)

    def unlinked(self, node: str, known: Collection[str], since: float) -> None:
        """A peer cannot be reached since then, and had said what it knows."""
        if LEASE_FEATURE in known:
            self._known_at[node] = since

    def shorter_by(self, others: Collection[Member], now: float) -> float:
        """By how many seconds the lease is to be counted shorter, while these other members are ready."""
        settings = self._settings
        if not 0 < settings.lease_before < settings.lease_ttl:
            return 0.0
        if not self._earlier and all(self._waits(each.node, now) for each in others):
            return 0.0
        return settings.lease_seconds * (1 - settings.lease_before / settings.lease_ttl)

    def renew_every(self, shorter_by: float) -> float:
        """How often a lease is renewed, in seconds, that is counted so much shorter."""
        settings = self._settings
        return min(settings.renew_every, settings.lease_before / RENEWALS) if shorter_by else settings.renew_every

    def _waits(self, node: str, now: float) -> bool:
        if node in self._features:
            return True  # or it is among the earlier ones
        return now - self._known_at.get(node, -math.inf) <= HELD_LEASES * self._settings.lease_ttl
