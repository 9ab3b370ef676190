"""Watch: which part of the time that has passed a primary holds against others, and when it judges no backup by it.

A process that was stopped, or busy with one long turn, runs its timers before it reads what has come meanwhile. A
backup that answered in that time looks silent then, and a write that has ended looks as if it hung. So in the tick that
ends a long step no backup is judged; the next one is, when what had come has been read
(``stopped_for_less_than_the_lease``). Of long steps in a row that goes for the first: what had come was read between
them, and who is gone is found out by a node that is always busy too. The verdict is put off and the time is not given
back: of a long step as much counts as of the longest that is not long, or steps that are long and short in turn would
hide for many times as long who is gone (``long_steps_that_alternate_with_short_ones``). The lease is no part of this:
all time counts against it.
"""

from __future__ import annotations


class Watch:
    """Times are seconds. ``longest``: a step up to this length counts whole.

    ``passed_over``: how much of the last step is held against no backup. ``unread``: what came in it has not been read
    yet, so no backup is judged by it now.
    """

    def __init__(self, longest: float, now: float) -> None:
        self.passed_over = 0.0
        self.unread = False
        self._longest = longest
        self._ticked_at = now
        self._was_long = False

    def tick(self, now: float) -> None:
        """Time has passed: to be told at every tick, before any backup is judged."""
        step, self._ticked_at = now - self._ticked_at, now
        first, self._was_long = not self._was_long, step > self._longest
        self.unread = first and self._was_long
        self.passed_over = max(0.0, step - self._longest)
