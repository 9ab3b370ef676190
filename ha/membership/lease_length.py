"""LeaseLength: for how long a primary counts on its lease, where a member that may succeed it waits for less.

A candidate waits for its own lease before it stands, so a primary may count on no longer one than every member that
could stand. A node of an earlier version waits for ``Settings.lease_before``, where this one waits for ``lease_ttl``:
so long as one counts as ready, or may, the primary counts on the shorter time (``lease_beside_an_earlier_version``).

Whether a member waits for the longer one it says as it greets (``LEASE_FEATURE``). Of one that cannot be reached it
holds for another lease what was known: it leaves the ready set meanwhile, and no node can be set back to an earlier
version and stand in a time in which its process has only just ended. Of one that was never reached nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from ha.messages.greeting import LEASE_FEATURE
from ha.settings import Settings
from txobserver.ids import Member


class LeaseLength:
    """Of one generation of a primary. ``features``: of each peer that can be reached, what both sides know."""

    def __init__(self, settings: Settings, features: Mapping[str, Collection[str]]) -> None:
        self._settings = settings
        self._features = features
        self._known_at: dict[str, float] = {}

    def shorter_by(self, others: Collection[Member], now: float) -> float:
        """By how many seconds the lease is to be counted shorter, while these other members may stand."""
        settings = self._settings
        if not 0 < settings.lease_before < settings.lease_ttl:
            return 0.0
        wait = [self._waits(each.node, now) for each in others]
        if all(wait):
            return 0.0
        return settings.lease_seconds * (1 - settings.lease_before / settings.lease_ttl)

    def _waits(self, node: str, now: float) -> bool:
        known = self._features.get(node)
        if known is None:
            return now - self._known_at.get(node, -math.inf) <= self._settings.lease_ttl
        if LEASE_FEATURE in known:
            self._known_at[node] = now
            return True
        self._known_at.pop(node, None)
        return False
