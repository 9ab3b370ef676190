"""What the windows of all queues of a broker may hold, each for itself and all together."""

from __future__ import annotations

from typing import NamedTuple

OVERHEAD = 300
"""Bytes that a message in a window is counted for beside its properties and body."""


class WindowLimits(NamedTuple):
    """How much of a queue's beginning is kept in memory: whichever limit is reached first.

    ``together``: bytes, with ``OVERHEAD`` for each message, that the windows of all queues hold; beyond that each
    holds ``least`` only, or one message.
    """

    messages: int = 4000
    bytes: int = 8 << 20
    together: int = 256 << 20
    least: int = 64 << 10


class Windows:
    """``held``: bytes that all windows hold together, as ``WindowLimits`` counts them, and pages that they wait for."""

    def __init__(self, limits: WindowLimits) -> None:
        self.limits = limits
        self.held = 0

    @property
    def exhausted(self) -> bool:
        """Whether each may hold ``least`` only."""
        return self.held >= self.limits.together

    @property
    def share(self) -> int:
        """How many bytes one window may hold now."""
        return min(self.limits.bytes, self.limits.least) if self.exhausted else self.limits.bytes

    def room(self, messages: int, size: int) -> int:
        """How many bytes more may join so many messages of this size; 0 or less: none."""
        limits = self.limits
        if not self.exhausted:
            return limits.bytes - size
        return min(limits.bytes, limits.least - OVERHEAD * messages) - size

    def weight(self, room: int, messages: int) -> int:
        """What a page of so many bytes and messages is counted for before it has come."""
        return room if self.exhausted else room + OVERHEAD * messages

    def messages(self, room: int, mean: int) -> int:
        """How many messages of this mean size there is room for."""
        return room // (mean + OVERHEAD if self.exhausted else mean)
