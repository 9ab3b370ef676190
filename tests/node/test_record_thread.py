"""The coordination store's thread: what becomes of a change that fails."""

from __future__ import annotations

import asyncio
import gc

from broker_plugin.guard import Guard
from broker_plugin.node.record_thread import RecordThread
from ha.coordination import CoordinationError, MemoryCoordination, Record


class Unreachable(MemoryCoordination):
    """Fails to make any change."""

    def compare_and_set(self, expected: int, record: Record) -> Record:
        raise CoordinationError("no answer in time")

    def close(self) -> None:
        """Nothing is held."""


async def test_a_change_that_fails_does_not_end_the_node() -> None:
    """Asyncio complains of an error that nobody has looked at, when garbage is collected; the guard ends the node."""
    ended: list[str] = []
    guard = Guard(ended.append, ended.append)
    guard.watch()
    records = RecordThread(Unreachable(), guard)
    failed = asyncio.Event()
    record = Record("c", 1, 1, None, ())
    records.compare_and_set(0, record, lambda stored: None, lambda current: None, failed.set)
    await failed.wait()
    await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    records.stop()
    assert not ended and not guard.broken
