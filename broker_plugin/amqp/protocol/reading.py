"""Which clients are read in a turn of the event loop: each a share, one after the other, until the turn has had enough.

A turn carries out about ``STEPS`` frames of all clients together, or fewer that cost more (``Turn.spent``). What has
come of a client beyond its share waits, and nothing more is taken from its socket, until the others have had theirs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker_plugin.embedded.queues.turn import STEPS, Turn

SHARE = STEPS // 4
"""Frames of one client that are carried out before those of another one that waits"""


class Sender(Protocol):
    """A client that has sent something."""

    @abstractmethod
    def take(self, data: bytes, most: int) -> bool:
        """These bytes have come; carry out so many frames at most. Whether more waits to be carried out."""

    @abstractmethod
    def taken(self) -> None:
        """All that has come is carried out: read on."""


class Reading:
    """Of one server. ``schedule`` is given what must be called in the next turn of the event loop."""

    def __init__(self, turn: Turn, schedule: Callable[[Callable[[], None]], object]) -> None:
        self._turn = turn
        self._schedule = schedule
        self._line: deque[Sender] = deque()
        self._due = False

    def arrived(self, sender: Sender, data: bytes) -> bool:
        """A client has sent this; whether some of it waits. Then nothing more is to be read until ``taken``."""
        turn = self._turn
        if not self._due:
            turn.begin()
            self._again()
        waits = bool(self._line) or turn.spent >= STEPS
        if sender.take(data, 0 if waits else turn.left):
            self._line.append(sender)
            return True
        return False

    def _again(self) -> None:
        self._due = True
        self._schedule(self._go_on)

    def _go_on(self) -> None:
        """The next turn."""
        line, turn = self._line, self._turn
        self._due = False
        turn.begin()
        if line:
            self._again()
        while line and turn.spent < STEPS:
            sender = line.popleft()
            if sender.take(b"", SHARE):
                line.append(sender)
            else:
                sender.taken()
