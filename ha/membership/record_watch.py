"""RecordWatch: for how long a candidate has seen one version of the coordination record stand still.

Only what this node's own clock has shown in short steps counts: in a longer one the node was not watching, or the clock
has jumped (``ha.membership.candidate``).
"""

from __future__ import annotations

from ha.log_events import TooBusyToStand
from ha.settings import Settings

UNWATCHED_LEASES = 10
"""After so many lease times in which a node could have stood, but for its own long steps, it says so."""


class RecordWatch:
    """All times are the shell's monotonic seconds. ``seen_to_stand``: for how long it has stood still while readings
    came."""

    def __init__(self, settings: Settings) -> None:
        self.seen_to_stand = 0.0
        self._settings = settings
        self._stood = 0.0
        self._unwatched = 0.0
        self._ticked_at: float | None = None

    def begin(self, now: float) -> None:
        """Another version has been seen."""
        self._stood = self.seen_to_stand = self._unwatched = 0.0
        self._ticked_at = now

    def tick(self, now: float, reads: bool) -> TooBusyToStand | None:
        """The version has stood still for as long as this node was watching, ticking or not; an event to be told.

        Readings are not asked for: a compare-and-set fails if the version has moved unseen. But that no node has taken
        over is known only of the time in which the record was read, ``reads`` (``patience_without_readings``).
        """
        step = 0.0 if self._ticked_at is None else now - self._ticked_at
        self._ticked_at = now
        if step <= self._settings.longest_step:
            self._stood += step
            if reads:
                self.seen_to_stand += step
            return None
        limit = UNWATCHED_LEASES * self._settings.lease_ttl
        told = None
        if self._unwatched < limit <= self._unwatched + step and self._stood < self._settings.lease_ttl:
            told = TooBusyToStand(self._settings.longest_step)
        self._unwatched += step
        return told

    @property
    def lease_over(self) -> bool:
        """Whether it has stood still for a whole lease: that version has no primary any more."""
        return self._stood >= self._settings.lease_ttl

    @property
    def busy_for_a_lease(self) -> bool:
        """Whether a lease would have been timed by now, but for this node's own long steps."""
        return self._unwatched >= self._settings.lease_ttl
