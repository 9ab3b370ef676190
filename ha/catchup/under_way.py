"""UnderWay: what has been sent to a joiner that copies and has not been taken by it, and when it gets more."""

from __future__ import annotations

from collections import deque

from ha.catchup.throttle import Throttle


class UnderWay:
    """``bytes``: of the parts that were sent and not taken; ``taken``: how many parts have been."""

    def __init__(self) -> None:
        self.bytes = 0
        self.taken = 0
        self._sizes: deque[int] = deque()

    @property
    def sent(self) -> int:
        """How many parts have been sent."""
        return self.taken + len(self._sizes)

    def send(self, size: int) -> None:
        """A part of so many bytes is sent."""
        self._sizes.append(size)
        self.bytes += size

    def take(self, taken: int) -> None:
        """The joiner says that it has taken so many parts."""
        while self.taken < taken and self._sizes:
            self.bytes -= self._sizes.popleft()
            self.taken += 1


class Portions:
    """Messages of the walk go in portions of ``limit`` bytes, with a rest after each where one is earned."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._throttle = Throttle()
        self._bytes = 0
        self._ends = 0
        self._resting = False

    @property
    def room(self) -> int:
        """Bytes that the portion at hand has left."""
        return self._limit - self._bytes

    def begin(self, now: float) -> None:
        """The first portion is sent from now on."""
        self._throttle.begin(now)

    def add(self, size: int, more: bool) -> None:
        """Messages of so many bytes are about to be sent; if ``more`` are left, they fill the portion."""
        self._bytes = self._limit if more else self._bytes + size

    def ends(self, sent: int) -> None:
        """The portion at hand has arrived when the joiner has taken as many parts as have been ``sent``."""
        self._ends = sent

    def may_go_on(self, now: float, taken: int, later: bool) -> bool:
        """Whether to send more of the walk. ``later``: it is at what came after the copy began, and does not rest."""
        if self._bytes < self._limit:
            return True
        if later:
            self._bytes = 0
        elif taken >= self._ends:
            self._bytes = 0
            self._throttle.rest(now)
            self._resting = True
        return not self._bytes and not self._resting

    def rests(self, now: float) -> bool:
        """Whether a rest is not over. When it is, the next portion begins."""
        if self._resting and not self._throttle.resting(now):
            self._resting = False
            self._throttle.begin(now)
        return self._resting
