"""Which requests wait for others than this node's loop, and how many of them may at a time.

What is answered at once always finds a place among the connections: those who wait never take all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

MAX_WAITING = 40
"""Requests that may wait at a time, of the connections that may be there; one more is refused."""
MAX_LASTING = 36
"""Of these, those that wait for as long as their askers have said; one more is refused."""


class Waits(NamedTuple):
    """Names of commands. ``at_once``: answered without waiting, or within a moment; all others may wait.

    ``lasting``: they wait for as long as their askers have said, and only to tell them: what they ask for is done
    without them. So they are cancelled when their askers have gone; all others come to their end by themselves.
    """

    at_once: frozenset[str] = frozenset()
    lasting: frozenset[str] = frozenset()


ALL_MAY_WAIT: Final = Waits()


class Places:
    """Counts the requests that wait, also those whose askers have gone meanwhile."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._taken: Counter[str] = Counter()

    def why_none(self, command: str) -> str | None:
        """Why this command cannot be carried out now; None if there is a place for it."""
        if command in self._waits.lasting:
            lasting = sum(self._taken[each] for each in self._waits.lasting)
            if lasting >= MAX_LASTING:
                return f"{lasting} requests of this kind wait at this node already; ask again when one is answered"
        if (waiting := self._taken.total()) >= MAX_WAITING:
            return f"{waiting} requests wait at this node already; ask again when one is answered"
        return None

    @contextmanager
    def taken(self, command: str) -> Iterator[None]:
        """A place is taken meanwhile."""
        self._taken[command] += 1
        try:
            yield
        finally:
            self._taken[command] -= 1
