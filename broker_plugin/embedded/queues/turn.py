"""Work that is done at the end of the event loop's turn, once however often it was asked for, and within a budget.

A hundred messages that arrive in one read wake a queue once, settle once and are written once. Whatever a client asks
for, a turn takes about ``STEPS`` steps of it: a message delivered, settled or given back, a frame read. The rest is
done in the next turn, in the order in which it was asked for, behind what other clients are read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial

from txobserver.leftovers import Container, Leftovers

Work = Callable[[], None]
STEPS = 1000
"""Of a turn. A step is some microseconds of work."""
AT_ONCE = 100
"""So few steps of one piece of work are done in any turn, however much that turn has done"""
LOOKS_A_STEP = 8
"""Queues, exchanges, bindings or branches that one request looks at, which are a step together"""
FREED = 50
"""So many objects are let go of in about one step."""


class Turn:
    """Collects work. ``schedule`` is called when there is some, so that ``run`` is called when the turn ends.

    ``spent``: steps since the turn began. ``longest`` is the most that any turn has taken.
    """

    def __init__(self, schedule: Callable[[], object]) -> None:
        self.spent = 0
        self.longest = 0
        self._schedule = schedule
        self._work: list[Work] = []
        self._leftovers = Leftovers()

    def begin(self) -> None:
        """Another turn of the event loop."""
        self.longest = max(self.longest, self.spent)
        self.spent = 0

    @property
    def left(self) -> int:
        """How many steps more may be taken in this turn; one at least, so that all work gets on."""
        return max(1, STEPS - self.spent)

    def looked_at(self, count: int) -> None:
        """One request has looked at so many things: a turn has room for few such requests."""
        self.spent += count // LOOKS_A_STEP

    def later(self, work: Work) -> None:
        """Do this when the turn ends. Callers that must not be called twice keep a flag."""
        self._work.append(work)
        if len(self._work) == 1:
            self._schedule()

    def let_go(self, container: Container) -> None:
        """Nothing needs this container and what it holds any more: it is emptied, in as many turns as it takes."""
        if len(container) <= STEPS:
            self.spent += len(container) // FREED
            container.clear()
            return
        if not self._leftovers.waiting:
            self.later(self._let_go)
        self._leftovers.add(container)

    def _let_go(self) -> None:
        self.spent += self._leftovers.go_on() // FREED
        if self._leftovers.waiting:
            self.later(self._let_go)

    def run(self) -> None:
        """The turn has ended. Work that is asked for meanwhile belongs to the next turn.

        What one piece of work raises (a damaged store) is raised here; the rest is done in the next turn.
        """
        work, self._work = self._work, []
        self.begin()
        done = 0
        try:
            for each in work:
                done += 1
                each()
                self.spent += 1
                if self.spent >= STEPS:
                    break
        finally:
            if done < len(work):
                if not self._work:
                    self._schedule()
                self._work = work[done:] + self._work


def steps_now(turn: Turn) -> int:
    """How many steps a piece may take in this turn."""
    return max(AT_ONCE, turn.left)


def in_pieces(turn: Turn, waiting: Sized, one: Work, then: Work) -> None:
    """Do ``one``, which takes something out of ``waiting``, until nothing is left there, and ``then``.

    As often as this turn has room for, and the rest in the turns that come. A step each.
    """
    until = turn.spent + steps_now(turn)
    while waiting and turn.spent < until:
        turn.spent += 1
        one()
    if waiting:
        turn.later(partial(in_pieces, turn, waiting, one, then))
    else:
        then()
