"""Virtual time and chance: everything that happens is a call at a time; nothing else moves the clock."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

Call = Callable[[], None]


MOST = 500_000
"""Events of one run, at most: of those that come to an end, a joiner with the slowest disk makes up to 170,000"""


class Endless(Exception):
    """So much has happened that it will not come to an end."""


class World:
    """``now`` is in seconds. Calls of the same time run in the order in which they were asked for.

    ``chance(name)`` is a source of randomness of its own, so that one that is asked more or less often leaves the
    others alone: a run with one fault less stays as like the run with it as can be.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.events = 0
        self.transcript: list[str] | None = None
        self._failure: BaseException | None = None
        self._calls: list[tuple[float, int, Call]] = []
        self._asked = 0

    def chance(self, name: str) -> random.Random:
        """A source of randomness for one purpose, the same for the same seed and name."""
        return random.Random(f"{self.seed}/{name}")

    def after(self, seconds: float, call: Call) -> None:
        """Call this so much later."""
        self._asked += 1
        heapq.heappush(self._calls, (self.now + seconds, self._asked, call))

    def run(self, until: float) -> None:
        """Let everything happen up to this time. Raises what ``fail`` was told."""
        self.run_while(lambda: True, until)

    def run_while(self, condition: Callable[[], bool], until: float) -> None:
        """Let everything happen for as long as this holds, and up to this time. Calls may use this themselves."""
        calls = self._calls
        while calls and calls[0][0] <= until:
            if not condition():
                return
            self.now, _, call = heapq.heappop(calls)
            self.events += 1
            if self.events > MOST:
                self.fail(Endless(f"{MOST} events, and no end"))
            call()
            if self._failure is not None:
                raise self._failure
        self.now = max(self.now, until)

    def fail(self, error: BaseException) -> None:
        """The run ends with this error, whatever becomes of it where it was raised."""
        if self._failure is None:
            self._failure = error

    def say(self, who: str, text: str) -> None:
        """One line of the transcript, if it is wanted."""
        if self.transcript is not None:
            self.transcript.append(f"{self.now:9.4f}  {who:<10} {text}")
