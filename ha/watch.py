"""Watch: which part of the time that has passed a primary holds against others.

A process that was stopped, or busy with one long turn, runs its timers before it reads what has come meanwhile. Whoever
answered in that time looks silent then, and a write that has ended looks as if it hung. So a long step of the clock is
held against nobody (``stopped_for_less_than_the_lease``). Of several in a row that goes for the first. The others count
as a step of the longest length each, since what had come was read between them: who is gone is found out by a node
that is always busy too. The lease is no part of this: all time counts against it.
"""

from __future__ import annotations


class Watch:
    """Times are seconds. ``longest``: a step up to this length counts whole."""

    def __init__(self, longest: float, now: float) -> None:
        self._longest = longest
        self._ticked_at = now
        self._was_long = False

    def passed_over(self, now: float) -> float:
        """To be asked at every tick: how much of the step since the last one is held against nobody."""
        step, self._ticked_at = now - self._ticked_at, now
        first, self._was_long = not self._was_long, step > self._longest
        if not self._was_long:
            return 0.0
        return step if first else step - self._longest
