"""LoopWatch: what a node's loop says to the watchdog, and what it learns from it about its lease.

Only what shows that another turn has begun counts as a completed one: a timer, or what a turn before has asked for. So
one turn of many long calls looks as long as it is.
"""

from __future__ import annotations

import logging
import math

from broker_plugin.logs.events import RenewedMeanwhile
from broker_plugin.logs.formats import tell
from ha.core import NodeCore
from ha.membership.watchdog import Watchdog

log = logging.getLogger("txha.turns")
SHOWN_SECONDS = 0.01
"""Between two turns that the watchdog is shown, at least."""


class LoopWatch:
    """Of one node. Times are the shell's monotonic seconds. After ``stop`` the watchdog is used no more."""

    def __init__(self, core: NodeCore, watchdog: Watchdog) -> None:
        self._core = core
        self._watchdog: Watchdog | None = watchdog
        self._shown_at = -math.inf

    def turned(self, now: float) -> None:
        """The loop has completed a turn: the lease of a primary that keeps it may be renewed for a while."""
        leading = self._core.leading
        if self._watchdog is None or leading is None or now - self._shown_at < SHOWN_SECONDS:
            return
        self.learn_renewals(now)
        if leading.keeper.holds(now):
            self._shown_at = now
            self._watchdog.turned(self._core.generation, now)

    def settled(self) -> None:
        """The core has drawn its consequences: the lease that a node has lost, or gives up, is renewed no more."""
        if self._shown_at > -math.inf and not self._keeps():
            self._rest()

    def learn_renewals(self, now: float) -> None:
        """Tell a primary what was renewed for it, to be called before its lease is judged."""
        leading = self._core.leading
        if self._watchdog is None or leading is None:
            return
        begun_at = self._watchdog.renewed_at(self._core.generation)
        if begun_at == -math.inf:
            return
        was_over = leading.keeper.expired(now)
        leading.keeper.renewed(begun_at)
        if was_over and not leading.keeper.expired(now):
            tell(log, logging.WARNING, RenewedMeanwhile(now - self._shown_at))

    def stop(self) -> None:
        """The node ends."""
        self._rest()
        self._watchdog = None

    def _keeps(self) -> bool:
        leading = self._core.leading
        return leading is not None and leading.keeper.serves_until > 0

    def _rest(self) -> None:
        self._shown_at = -math.inf
        if self._watchdog is not None:
            self._watchdog.rest()
