"""Turns of the event loop that take too long, and what took them: such a turn costs a primary part of its lease.

A turn is all that the loop calls between two looks at its sockets and timers. It is measured in processor time of the
loop's thread, so neither a process that was stopped nor a machine that is busy with others looks like a long turn.
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


class TurnMonitor:
    """Of one loop, in whose next turn ``later`` calls. ``clock`` tells the processor time of its thread, in seconds.

    ``client`` is whose bytes were carried out last in this turn.
    """

    def __init__(
        self, later: Callable[[Callable[[], None]], object], clock: Callable[[], float] = time.thread_time
    ) -> None:
        self.client = ""
        self._later = later
        self._clock = clock
        self._began: float | None = None
        self._inside = False
        self._longest = 0.0
        self._call: object = None

    def begin(self) -> float | None:
        """Something is called; None if that is inside another call."""
        if self._inside:
            return None
        self._inside = True
        now = self._clock()
        if self._began is None:
            self._began = now
            self._later(self._ended)
        return now

    def end(self, call: object, began: float) -> None:
        """It has returned, or failed."""
        self._inside = False
        seconds = self._clock() - began
        if seconds > self._longest:
            self._longest, self._call = seconds, call

    def _ended(self) -> None:
        """Another turn has begun."""
        assert self._began is not None
        seconds = self._clock() - self._began
        if seconds > LONG_SECONDS:
            tell(log, logging.WARNING, LongTurn(seconds, name_of_call(self._call), self._longest, self.client))
        self._began = self._call = None
        self._longest, self.client = 0.0, ""


def name_of_call(call: object) -> str:
    """What people call it."""
    while isinstance(call, partial):
        call = call.func
    return str(getattr(call, "__qualname__", type(call).__qualname__))
