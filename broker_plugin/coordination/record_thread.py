"""The coordination store's thread: its calls block, and the event loop never waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from broker_plugin.guard import Guard
from ha.membership.record import CasConflict, Coordination, CoordinationError, Record

log = logging.getLogger("txha.coordination")
Told = Callable[[Future[Any]], None]
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


class RecordThread:
    """Calls in order; their answers are told in the event loop, in the same order.

    Who waits for a change is told of it before the loop comes to it, and of all that was answered before: a record that
    was read before the change, and told behind it, would look as if it had gone back
    (``read_before_a_change_and_told_behind_it``). ``give_up`` lets the call that is on its way end, should the node's
    end have to wait for it. ``complaint`` is what the last answer failed with, in a sentence; empty if it did not.
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
        self._waiting: dict[Future[Any], Told] = {}
        self._changes: set[Future[Any]] = set()
        self._telling = False

    def read(self, on_record: Callable[[Record | None], None]) -> None:
        """Read the record, unless a read is on its way already. Errors are logged and the next read tries again."""
        if self._reading:
            return
        self._reading = True

        def told(future: Future[Any]) -> None:
            self._reading = False
            if self._fine(future):
                on_record(future.result())

        self._submit(told, self._coordination.read)

    def compare_and_set(
        self,
        expected: int,
        record: Record,
        stored: Callable[[Record], None],
        conflict: Callable[[Record | None], None],
        failed: Callable[[], None],
    ) -> None:
        """Change the record; exactly one of the callbacks is called."""

        def told(future: Future[Any]) -> None:
            self._changes.discard(future)
            error = future.exception()
            if isinstance(error, CasConflict):
                self.complaint = ""
                conflict(error.current)
            elif self._fine(future):
                stored(future.result())
            else:
                failed()

        self._changes.add(self._submit(told, self._coordination.compare_and_set, expected, record))

    def wait(self, seconds: float) -> None:
        """Tell the answers to changes that are on their way at once, if they come within so many seconds."""
        if self._changes:
            self._calls.wait(list(self._changes), seconds)
            self._tell()

    def _submit(self, told: Told, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = self._calls.submit(call, *arguments)
        self._waiting[future] = told

        def answered(of: asyncio.Future[Any]) -> None:
            of.exception()  # looked at, or asyncio calls it forgotten, and the guard ends the node for it
            self._tell()

        self._guard.when_done(asyncio.wrap_future(future, loop=self._guard.loop), answered)
        return future

    def _tell(self) -> None:
        """Tell what has been answered; not to who waits while he is told something: that comes afterwards."""
        if self._telling:
            return
        self._telling = True
        try:
            while (first := next(iter(self._waiting), None)) is not None and first.done():
                self._waiting.pop(first)(first)
        finally:
            self._telling = False

    def stop(self) -> None:
        """Finish what is on its way, if it ends in time, and let go of the store."""
        closed = self._calls.submit(self._coordination.close)
        self._calls.wait([closed], STOP_SECONDS)
        if not closed.done():
            self._give_up()
        self._calls.shutdown(wait=True)

    def _fine(self, future: Any) -> bool:
        error = future.exception()
        text = str(error) if error else ""
        if text and text != self.complaint:
            log.error("%s", text)
        if error is not None and not isinstance(error, CoordinationError):
            log.error("the coordination store failed unexpectedly", exc_info=error)
        self.complaint = text
        return error is None
