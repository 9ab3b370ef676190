"""Operations on one name, one after the other: a second declaration waits until the outcome of the first is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from functools import partial


class NameLocks:
    """An operation runs at once unless its name is held; it may hold the name itself until it calls ``release``."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}

    def run(self, name: Hashable, operation: Callable[[], None]) -> None:
        """Run this when no operation holds the name. It must not raise."""
        waiting = self._waiting.get(name)
        if waiting is None:
            operation()
        else:
            waiting.append(operation)

    def run_all(self, names: Collection[Hashable], operation: Callable[[], None]) -> None:
        """Run this when no operation holds any of these names. It holds none while it waits, so two cannot wait for
        each other. It must not raise.
        """
        for name in names:
            if name in self._waiting:
                self._waiting[name].append(partial(self.run_all, names, operation))
                return
        operation()

    def hold(self, *names: Hashable) -> None:
        """Later operations on these names wait."""
        for name in names:
            self._waiting[name] = deque()

    def release(self, *names: Hashable) -> None:
        """The outcome is known: go on with those who wait, until one of them holds the name."""
        freed = [(name, self._waiting.pop(name)) for name in names]
        for name, waiting in freed:
            while waiting:
                if name in self._waiting:
                    self._waiting[name].extend(waiting)
                    break
                waiting.popleft()()
