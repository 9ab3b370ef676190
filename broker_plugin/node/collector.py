"""Python's collector at a node: it looks at what is new in each tick, so that it never finds much at once.

By itself it runs when so many more objects have been made than freed. Where as many are freed meanwhile, as when what a
client holds is moved into a transaction, hundreds of thousands of new ones pile up, and one look at them takes 100 ms.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

from broker_plugin.guard import Guard

GC_THRESHOLDS = (10_000, 4, 100_000)
"""Of the collector's three generations, in objects and in runs of the generation below."""
EVERY = 0.1
"""Seconds between two looks at what is new."""
NEW = 1
"""The generation up to which it looks: what it finds in use there is looked at again only when all is."""


class Collector:
    """What is there when it starts is never looked at. ``collect``: looks at the generations up to one."""

    def __init__(self, guard: Guard, collect: Callable[[int], object] = gc.collect) -> None:
        self._guard = guard
        self._collect = collect
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Messages are not looked at by the collector; what is left to find is little, and all clients feel a pause."""
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._guard.call_later(EVERY, self._look)
        self._collect(NEW)
