"""The coordination store's thread: its calls block, and the event loop never waits for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from broker_plugin.guard import Guard
from broker_plugin.logs.events import RecordUnread
from broker_plugin.logs.formats import tell
from ha.membership.record import UNSEEN, CasConflict, Coordination, CoordinationError, Record, Waiter

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

    def waiter(self) -> Waiter:
        """For a call that waits, and is to end when something else is to be called."""
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

    def waiter(self) -> Waiter:
        """An event between threads."""
        return threading.Event()


class RecordThread:
    """Calls in order; their answers are told in the event loop, in the same order.

    The record is watched in the same thread (``watch``): a call that is to be made ends the wait at once, and the watch
    goes on behind it. So a reading is never told behind the answer to a change that it does not know of.

    A caller that waits for a change gets its answer before the loop comes to it, and all earlier answers before that: a
    record that was read before the change, and told behind it, would look as if it had gone back
    (``read_before_a_change_and_told_behind_it``). A call that is on its way is given up, should the node's end have to
    wait for it. ``complaint`` is what the last answer failed with, in a sentence; empty if it did not.
    """

    def __init__(
        self,
        coordination: Coordination,
        guard: Guard,
        calls: Calls | None = None,
    ) -> None:
        self._guard = guard
        self._coordination = coordination
        self._calls = calls or OneThread()
        self._reading = False
        self._watcher: Callable[[Record | None], None] | None = None
        self._every = 0.0
        self._waiter: Waiter | None = None
        self._known = UNSEEN
        self.complaint = ""
        self._waiting: dict[Future[Any], Told] = {}
        self._changes: set[Future[Any]] = set()
        self._telling = False
        self._stopped = False

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

    def watch(self, on_record: Callable[[Record | None], None], every: float) -> None:
        """From now on tell the record: at once, when it changes, and every so many seconds that it is what it was.

        A reading that fails is logged, and the next one comes ``every`` seconds after it was asked for.
        """
        self._watcher, self._every, self._known = on_record, every, UNSEEN
        self._look()

    def rest(self) -> None:
        """Watch no more."""
        self._watcher = None
        self._interrupt()

    def _look(self) -> None:
        watcher, began = self._watcher, self._guard.loop.time()
        if watcher is None or self._waiter is not None or self._stopped:
            return
        waiter = self._waiter = self._calls.waiter()

        def told(future: Future[Any]) -> None:
            self._waiter = None
            if not self._fine(future):
                again = began + self._every - self._guard.loop.time()
                self._guard.call_later(max(0.0, again), self._look)
                return
            if (found := future.result()) is not None and self._watcher is not None:
                self._known = found.version
                self._watcher(found.record)
            self._look()

        self._call(told, self._coordination.watch, self._known, self._every, waiter)

    def _interrupt(self) -> None:
        """Something else is to be called: a watch that waits ends now."""
        if self._waiter is not None:
            self._waiter.set()

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
        self._interrupt()
        return self._call(told, call, *arguments)

    def _call(self, told: Told, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
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
        self._stopped = True
        self._interrupt()
        closed = self._calls.submit(self._coordination.close)
        self._calls.wait([closed], STOP_SECONDS)
        if not closed.done():
            self._coordination.give_up()
        self._calls.shutdown(wait=True)

    def _fine(self, future: Any) -> bool:
        error = future.exception()
        text = str(error) if error else ""
        if text and text != self.complaint:
            tell(log, logging.ERROR, RecordUnread(text))
        if error is not None and not isinstance(error, CoordinationError):
            tell(log, logging.ERROR, RecordUnread("the coordination store failed unexpectedly"), error=error)
        self.complaint = text
        return error is None
