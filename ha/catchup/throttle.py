"""Throttle: how fast a joiner is served, so that it costs the commits that go on meanwhile little.

At full speed a catch-up takes whatever processor and disk there are, the commits' part too. So a joiner is sent one
portion at a time, and rests after each for twice as long as that took: it works for a third of the time. Where the end
moves on, a rest must be earned: only after what is still lacking has shrunk by half a portion since the last one. Else
a load that goes on would keep the joiner away for ever (P12); then it works without rest, and catches up if it can.
"""

from __future__ import annotations

RESTS = 2.0
"""For so many times what a portion took."""

LONGEST_REST = 0.25
"""Seconds. Less than any timeout: no joiner that rests is taken for silent."""


class Throttle:
    """Of one joiner. Times are seconds; portions and lags are counted in the same unit, whatever it is."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._until = 0.0
        self._lag: int | None = None

    @property
    def working(self) -> bool:
        """Whether a portion is on its way."""
        return self._began is not None

    def resting(self, now: float) -> bool:
        """Whether the next portion has to wait."""
        return now < self._until

    def begin(self, now: float) -> None:
        """A portion is sent."""
        self._began = now

    def end(self, now: float, portion: int, lag: int) -> None:
        """It has arrived; ``lag`` is what is still lacking."""
        if self._lag is None or lag + portion // 2 <= self._lag:
            self._lag = lag
            self.rest(now)
        self._began = None

    def rest(self, now: float) -> None:
        """It has arrived, and there is an end of such portions, so a rest is earned by each."""
        assert self._began is not None
        self._until = now + min(RESTS * (now - self._began), LONGEST_REST)
        self._began = None
