"""Turns of the event loop that take too long, and what took them: such a turn costs a primary part of its lease.

A turn is all that the loop calls between two looks at its sockets and timers. It is measured in processor time of the
loop's thread, so neither a process that was stopped nor a machine that is busy with others looks like a long turn.

The monitor must cost little, since it stands around everything that the loop calls. Processor time takes a call of the
system, and to be called when a turn ends takes another turn of the loop. So it asks for both only when the calls since
it last did have taken ten milliseconds, by the time that passed: what it tells of a turn may be so much too long. It
looks anew where less than half of the time since then was taken by such calls: what the loop calls beside them, as the
administration's conversations, is measured only together with them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from broker_plugin.logs.events import LongTurn
from broker_plugin.logs.formats import tell

log = logging.getLogger("txha.turns")
LONG_SECONDS = 0.05
"""Of processor time: a turn that takes more is logged."""
LOOK_SECONDS = 0.01
"""When calls have taken so long, the monitor looks how much processor time that was when their turn has ended."""


class TurnMonitor:
    """Of one loop, in whose next turn ``later`` calls.

    ``processor`` tells the processor time of its thread, ``passing`` the time that passes; both in seconds. ``client``
    is whose bytes were carried out last in this turn. ``long_turns``: how many there have been; ``longest_seconds``:
    the longest turn of those that took more than ``LOOK_SECONDS``.
    """

    def __init__(
        self,
        later: Callable[[Callable[[], None]], object],
        processor: Callable[[], float] = time.thread_time,
        passing: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = ""
        self.long_turns = 0
        self.longest_seconds = 0.0
        self._later = later
        self._processor = processor
        self._passing = passing
        self._before: float | None = None
        self._since = 0.0
        self._inside = self._told = False
        self._passed = self._longest = 0.0
        self._call: object = None

    def begin(self) -> float | None:
        """Something is called; None if that is inside another call."""
        if self._inside:
            return None
        self._inside = True
        now = self._passing()
        since = now - self._since
        if self._before is None or (since > LOOK_SECONDS and not self._told and 2 * self._passed < since):
            self._look(now)  # what was spent since the last look, was spent in other turns, or on what nothing guards
        return now

    def _look(self, now: float) -> None:
        """From here on it is ``now`` that a turn is measured."""
        self._before, self._since = self._processor(), now
        self._call, self._passed, self._longest = None, 0.0, 0.0

    def end(self, call: object, began: float) -> None:
        """It has returned, or failed."""
        self._inside = False
        seconds = self._passing() - began
        self._passed += seconds
        if seconds > self._longest:
            self._longest, self._call = seconds, call
        if self._passed > LOOK_SECONDS and not self._told:
            self._told = True
            self._later(self._ended)

    def _ended(self) -> None:
        """Another turn has begun."""
        assert self._before is not None
        now = self._processor()
        seconds = now - self._before
        self.longest_seconds = max(self.longest_seconds, seconds)
        if seconds > LONG_SECONDS:
            self.long_turns += 1
            tell(log, logging.WARNING, LongTurn(seconds, name_of_call(self._call), self._longest, self.client))
        self._before, self._since, self.client = now, self._passing(), ""
        self._call, self._told, self._passed, self._longest = None, False, 0.0, 0.0


def name_of_call(call: object) -> str:
    """What people call it."""
    while isinstance(call, partial):
        call = call.func
    return str(getattr(call, "__qualname__", type(call).__qualname__))
