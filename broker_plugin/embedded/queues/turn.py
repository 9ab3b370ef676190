"""Work that is done once at the end of the event loop's turn, however often it was asked for.

A hundred messages that arrive in one read wake a queue once, settle once and are written once.
"""

from __future__ import annotations

from collections.abc import Callable

Work = Callable[[], None]


class Turn:
    """Collects work. ``schedule`` is called when there is some, so that ``run`` is called when the turn ends."""

    def __init__(self, schedule: Callable[[], object]) -> None:
        self._schedule = schedule
        self._work: list[Work] = []

    def later(self, work: Work) -> None:
        """Do this when the turn ends. Callers that must not be called twice keep a flag."""
        self._work.append(work)
        if len(self._work) == 1:
            self._schedule()

    def run(self) -> None:
        """The turn has ended. Work that is asked for meanwhile belongs to the next turn.

        What one piece of work raises (a damaged store) is raised here; the rest is done in the next turn.
        """
        work, self._work = self._work, []
        done = 0
        try:
            for each in work:
                done += 1
                each()
        finally:
            for each in work[done:]:
                self.later(each)
