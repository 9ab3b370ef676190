"""Watchdog: how a primary's loop shows that it completes turns, and learns what was renewed for it meanwhile.

A loop that is in the middle of one long turn cannot ask for a renewal, so the coordination store renews without being
asked (``Renewals``), as long as the last turn was completed a short time ago. That time is shorter than a lease: a loop
that hangs is taken for hung, its lease runs out, and another node takes over.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Renewals(NamedTuple):
    """When a coordination store renews a lease without being asked, in seconds.

    ``every``: between renewals, about. ``hung_after``: so long after the last completed turn none is made any more.
    ``released_for``: the lease of a node whose process is certainly gone is given up for it; not where another process
    speaks to its clients too.
    """

    every: float
    hung_after: float
    released_for: bool = False


class Watchdog(Protocol):
    """Times are the shell's monotonic seconds: the coordination store looks at the same clock of the same machine."""

    def turned(self, generation: int, now: float) -> None:
        """The loop of the primary of this generation has completed a turn, and the lease is to be kept."""
        ...

    def rest(self) -> None:
        """The lease is to be kept no more. A renewal that is on its way may still be made."""
        ...

    def renewed_at(self, generation: int) -> float:
        """When the last renewal of this generation's lease was begun that was made and synced unasked; minus infinity
        if there was none."""
        ...
