"""Operations on one name, one after the other: a second declaration waits until the outcome of the first is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable


class NameLocks:
    """An operation runs at once unless its name is held; it may hold the name itself until it calls ``release``."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}

    def run(self, name: Hashable, operation: Callable[[], None]) -> None:
        """Run this when nobody holds the name. It must not raise."""
        waiting = self._waiting.get(name)
        if waiting is None:
            operation()
        else:
            waiting.append(operation)

    def hold(self, name: Hashable) -> None:
        """Later operations on this name wait."""
        self._waiting[name] = deque()

    def release(self, name: Hashable) -> None:
        """The outcome is known: go on with those who wait, until one of them holds the name."""
        waiting = self._waiting.pop(name)
        while waiting:
            waiting.popleft()()
            if name in self._waiting:
                self._waiting[name].extend(waiting)
                return
