"""The coordination store's thread: its calls block, and the event loop never waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

from broker_plugin.guard import Guard
from ha.coordination import CasConflict, Coordination, CoordinationError, Record

log = logging.getLogger("txha.coordination")
STOP_SECONDS = 1.0
"""How long the end of a node waits for a call that is on its way."""


class Calls(Protocol):
    """Makes calls that block, one at a time and in order, while the event loop goes on."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Make this call after all before it."""
        ...

    def wait(self, futures: Collection[Future[Any]], seconds: float) -> None:
        """Block until these are done, or for so long."""
        ...

    def shutdown(self, wait: bool = True) -> None:
        """Take no more; ``wait`` for what was submitted."""
        ...


class OneThread(ThreadPoolExecutor):
    """Implements ``Calls`` with a thread."""

    def __init__(self) -> None:
        super().__init__(1, thread_name_prefix="coordination")

    def wait(self, futures: Collection[Future[Any]], seconds: float) -> None:
        """Block until these are done, or for so long."""
        wait(futures, seconds)


class Change(NamedTuple):
    """A change of the record that is on its way: which of all calls it is, and whom to tell."""

    number: int
    done: Callable[[Any], None]


class RecordThread:
    """Calls in order; answers come back in the event loop.

    Who waits for the answer to a change is told of it before the loop comes to what was answered earlier. A record that
    was read before that change is told no more: it would look as if the record had gone back
    (``read_before_a_change_and_told_behind_it``).

    ``give_up`` lets the call that is on its way end, should the node's end have to wait for it. ``complaint`` is what
    the last answer failed with, in a sentence; empty if it did not.
    """

    def __init__(
        self,
        coordination: Coordination,
        guard: Guard,
        calls: Calls | None = None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard = guard
        self._coordination = coordination
        self._calls = calls or OneThread()
        self._give_up = give_up
        self._reading = False
        self.complaint = ""
        self._calls_made = 0
        self._last_told = 0
        self._changes: dict[Future[Any], Change] = {}

    def read(self, on_record: Callable[[Record | None], None]) -> None:
        """Read the record, unless a read is on its way already. Errors are logged and the next read tries again."""
        if self._reading:
            return
        self._reading = True
        number = self._next_call()

        def done(future: Any) -> None:
            self._reading = False
            if number > self._last_told and self._fine(future):
                on_record(future.result())

        self._submit(self._coordination.read, done)

    def compare_and_set(
        self,
        expected: int,
        record: Record,
        stored: Callable[[Record], None],
        conflict: Callable[[Record | None], None],
        failed: Callable[[], None],
    ) -> None:
        """Change the record; exactly one of the callbacks is called."""

        def done(future: Any) -> None:
            error = future.exception()
            if isinstance(error, CasConflict):
                self.complaint = ""
                conflict(error.current)
            elif self._fine(future):
                stored(future.result())
            else:
                failed()

        change = self._calls.submit(self._coordination.compare_and_set, expected, record)
        self._changes[change] = Change(self._next_call(), done)

        def answered(future: asyncio.Future[Any]) -> None:
            future.exception()  # looked at, or asyncio calls it forgotten, and the guard ends the node for it
            self._answer(change)

        self._guard.when_done(asyncio.wrap_future(change, loop=self._guard.loop), answered)

    def wait(self, seconds: float) -> None:
        """Deliver the answers to changes that are on their way at once, if they come within so many seconds."""
        if self._changes:
            self._calls.wait(list(self._changes), seconds)
            for change in [each for each in self._changes if each.done()]:
                self._answer(change)

    def _answer(self, change: Future[Any]) -> None:
        waiting = self._changes.pop(change, None)
        if waiting is not None:
            self._last_told = max(self._last_told, waiting.number)
            waiting.done(change)

    def _next_call(self) -> int:
        self._calls_made += 1
        return self._calls_made

    def stop(self) -> None:
        """Finish what is on its way, if it ends in time, and let go of the store."""
        closed = self._calls.submit(self._coordination.close)
        self._calls.wait([closed], STOP_SECONDS)
        if not closed.done():
            self._give_up()
        self._calls.shutdown(wait=True)

    def _submit(self, call: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._guard.when_done(asyncio.wrap_future(self._calls.submit(call), loop=self._guard.loop), done)

    def _fine(self, future: Any) -> bool:
        error = future.exception()
        text = str(error) if error else ""
        if text and text != self.complaint:
            log.error("%s", text)
        if error is not None and not isinstance(error, CoordinationError):
            log.error("the coordination store failed unexpectedly", exc_info=error)
        self.complaint = text
        return error is None
