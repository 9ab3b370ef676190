"""A purge piece by piece, of a queue of which clients hold so much that one event which spares it would be too long.

What stands ready is taken out as consumers would take it, in order, and leaves the queue as what is acknowledged does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txobserver.ports.ledger import Done

SPARED_MOST: Final = 1000
"""Messages in the hands of clients that a purge names in its one event; where there are more, the queue is drained"""


class Draining:
    """``left``: messages still to be taken; ``count``: those that have been; ``done`` is told when all have left."""

    def __init__(self, left: int, done: Done) -> None:
        self.left = left
        self.count = 0
        self.done = done
        self._leaving: set[int] = set()

    def taken(self, offset: int) -> None:
        """A message is on its way out."""
        self.left -= 1
        self.count += 1
        self._leaving.add(offset)

    def gone(self, entries: Iterable[tuple[int, int]]) -> None:
        """Messages have left the queue, these or others."""
        for offset, _ in entries:
            self._leaving.discard(offset)

    @property
    def over(self) -> bool:
        """Whether all have left."""
        return not self.left and not self._leaving
