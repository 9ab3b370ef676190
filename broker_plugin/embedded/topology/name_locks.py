"""Operations on one name, one after the other: a second declaration waits until the outcome of the first is known.

Very many may wait for one name. When it is released they go on in as many turns as that takes, in their order; an
operation that comes meanwhile waits behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from functools import partial

from broker_plugin.embedded.queues.turn import Turn, steps_now

Waiting = deque[Callable[[], None]]
STEPS_EACH = 5
"""Of an operation, as of the method that asks for it"""
NONE: Hashable = object()
"""No name"""


class NameLocks:
    """An operation runs at once unless its name is held; it may hold the name itself until it calls ``release``."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: dict[Hashable, Waiting] = {}
        self._freed: dict[Hashable, Waiting] = {}
        """Of names that are held no more: those who waited, and whose turn has not come"""
        self._current = NONE
        """Of whose name an operation runs now that has waited for it"""

    def run(self, name: Hashable, operation: Callable[[], None]) -> None:
        """Run this when no operation holds the name. It must not raise."""
        waiting = self._line(name)
        if waiting is None:
            operation()
        else:
            waiting.append(operation)

    def run_all(self, names: Collection[Hashable], operation: Callable[[], None]) -> None:
        """Run this when no operation holds any of these names. It holds none while it waits, so two cannot wait for
        each other. It must not raise.
        """
        for name in names:
            if (waiting := self._line(name)) is not None:
                waiting.append(partial(self.run_all, names, operation))
                return
        operation()

    def hold(self, *names: Hashable) -> None:
        """Later operations on these names wait, behind those who have waited before."""
        for name in names:
            self._waiting[name] = self._freed.pop(name, deque())

    def release(self, *names: Hashable) -> None:
        """The outcome is known: go on with those who wait, until one of them holds the name."""
        for name in names:
            if waiting := self._waiting.pop(name):
                self._freed[name] = waiting
        for name in names:
            if name != self._current:  # else it goes on where this was called
                self._go_on(name)

    def forget(self) -> None:
        """Nothing of this broker goes on any more."""
        self._waiting.clear()
        self._freed.clear()

    def _line(self, name: Hashable) -> Waiting | None:
        """Where an operation on this name has to wait; None if its turn has come."""
        waiting = self._waiting.get(name)
        return waiting if waiting is not None or name == self._current else self._freed.get(name)

    def _go_on(self, name: Hashable) -> None:
        turn, before = self._turn, self._current
        until = turn.spent + steps_now(turn)
        while waiting := self._freed.get(name):
            if turn.spent >= until:
                turn.later(partial(self._go_on, name))
                break
            turn.spent += STEPS_EACH
            self._current = name
            waiting.popleft()()
            self._current = before
        else:
            if name in self._freed:
                del self._freed[name]
