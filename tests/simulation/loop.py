"""The event loop of one simulated process: asyncio's interface, on virtual time.

It runs in rounds, as asyncio's do: what is ready when a round begins is called in order, what these calls ask for waits
for the next round. A stopped process (SIGSTOP) runs nothing and finds everything when it goes on; one that was killed
runs nothing any more. Its threads stop and end with it.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import Handle, TimerHandle
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from tests.simulation.world import World

BEGAN_MS = 1_700_000_000_000
"""What the wall clocks say when a run begins"""
ROUND = 0.001
"""Seconds that a round takes, at most"""
Call = Callable[[], None]


class MachineClock:
    """The clocks of one machine. ``skipped``: how long it was suspended; ``wall_offset``: milliseconds."""

    def __init__(self, world: World, offset: float, rate: float) -> None:
        self.rate = rate
        self.skipped = 0.0
        self.wall_offset = 0
        self._world = world
        self._offset = offset

    def monotonic(self) -> float:
        """Seconds, without those of suspension."""
        return self._offset + self.rate * self._world.now

    def now(self) -> float:
        """Seconds, with those of suspension."""
        return self.monotonic() + self.skipped

    def wall_ms(self) -> int:
        """Milliseconds of the wall clock."""
        return max(0, BEGAN_MS + int(self._world.now * 1000) + self.wall_offset)


class Killed(BaseException):
    """The process was killed while it waited inside a call."""


class SimLoop(asyncio.AbstractEventLoop):
    """``name`` says whose it is. ``net`` is what sockets are opened on.

    Many methods: an event loop, which has those that asyncio and the product call.
    """

    def __init__(self, world: World, name: str, clock: MachineClock, net: Any, chance: random.Random) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.executor: Executor | None = None
        self._world = world
        self._clock = clock
        self._net = net
        self._chance = chance
        self._ready: deque[Handle] = deque()
        self._due = False
        self._waits = False
        self._left = 0
        self._held: list[Call] = []
        self._futures: list[asyncio.Future[Any]] = []
        self._late: tuple[list[Handle], list[Handle]] = [], []

    # -- the process

    def pause(self, calls: int = 0) -> None:
        """SIGSTOP: after so many more calls of the next round nothing is called."""
        self._left = calls
        self.paused = calls == 0 or not self._ready

    def go_on(self) -> None:
        """SIGCONT: threads go on, and what came meanwhile is called; whether input or timers come first is chance."""
        self.paused, self._left = False, 0
        held, self._held = self._held, []
        for call in held:
            self._take(call)
        first, second = self._late if self._chance.random() < 0.5 else self._late[::-1]
        self._ready.extend((*first, *second))
        self._late = [], []
        if self._ready:
            self._wake()

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False
        self._ready.clear()
        self._held.clear()

    def thread(self, seconds: float, call: Call) -> None:
        """A thread of this process does this so much later, unless it is stopped or has ended by then."""
        self._world.after(seconds, lambda: self._take(call))

    def _take(self, call: Call) -> None:
        if self.paused:
            self._held.append(call)
        elif self.alive:
            call()

    def arrives(self, callback: Callable[..., object], *args: Any) -> None:
        """Something has come that the loop polls for."""
        if not self.alive:
            return
        handle = Handle(callback, args, self)
        if self.paused:
            self._late[0].append(handle)
        else:
            self._ready.append(handle)
            self._wake()

    def wait(self, done: Callable[[], bool], seconds: float) -> None:
        """The loop's thread waits inside a call, for so long at most, and the world goes on."""
        end = self._world.now + seconds / self._clock.rate
        self._waits = True
        _set_running_loop(None)
        try:
            self._world.run_while(lambda: self.alive and not done(), end)
            self._world.run_while(lambda: self.alive and self.paused, float("inf"))
        finally:
            _set_running_loop(self)
            self._waits = False
        if not self.alive:
            raise Killed

    @contextmanager
    def running(self) -> Generator[None]:
        """What is called in here runs in this loop."""
        before = _get_running_loop()
        _set_running_loop(self)
        try:
            yield
        finally:
            _set_running_loop(before)

    # -- rounds

    def _wake(self) -> None:
        if not self._due and self.alive:
            self._due = True
            self._world.after(self._chance.random() * ROUND, self._round)

    def _round(self) -> None:
        self._due = False
        if self._waits or self.paused or not self.alive:
            return
        before = _get_running_loop()
        _set_running_loop(self)
        ready = self._ready
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:  # type: ignore[attr-defined]
                    self._run(handle)
                    if self._left:
                        self._left -= 1
                        self.paused = not self._left
                    if self.paused or not self.alive:
                        return
        finally:
            _set_running_loop(before)
        if ready:
            self._wake()

    def _run(self, handle: Any) -> None:
        try:
            handle._context.run(handle._callback, *handle._args)
        except Killed:
            pass
        except Exception as error:
            self._fail(error)

    def _fire(self, handle: TimerHandle) -> None:
        if handle.cancelled() or not self.alive:
            return
        if self.paused:
            self._late[1].append(handle)
        else:
            self._ready.append(handle)
            self._wake()

    # -- asyncio.AbstractEventLoop

    def time(self) -> float:
        return self._clock.monotonic()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self.alive

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._due:
            self._wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        seconds = max(0.0, (when - self.time()) / self._clock.rate)
        self._world.after(seconds, lambda: self._fire(handle))
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """A timer that was cancelled stays where it is, and does nothing."""

    def create_future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.Future(loop=self)
        self._futures.append(future)
        return future

    def forgotten(self) -> list[BaseException]:
        """Errors that were not looked at: asyncio complains of each when it collects garbage, and the node ends."""
        done = [each for each in self._futures if each.done() and not each.cancelled()]
        forgotten = [each for each in done if each._log_traceback]  # type: ignore[attr-defined]
        return [error for each in forgotten if (error := each.exception()) is not None]

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        return asyncio.wrap_future((executor or self.executor).submit(func, *args), loop=self)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._net.listen(self, host, protocol_factory)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        return await self._net.connect(self, host, protocol_factory)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Asyncio's own complaints come when garbage is collected: at any time, so nothing can rest on them."""

    def _fail(self, error: BaseException) -> None:
        """An error that nothing has caught is a fault of the product, or of the simulator."""
        if self.alive:
            self._world.fail(error)


