"""The threads of a simulated process that make calls which block: one call at a time, in order, each in its own time.

Implements what the product asks of an executor (``broker_plugin.coordination.record_thread.Calls``). When a call does
what it does, and when its answer comes, is for a plan to say: the two lie apart where a process lies between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

from ha.membership.record import UNSEEN
from tests.simulation.loop import SimLoop
from tests.simulation.world import World


class Plan(NamedTuple):
    """Of one call, seconds from now: when it is carried out, each time that it is, and when its answer is there."""

    lands: tuple[float, ...]
    answer: float | None
    """Behind the last landing; None: it is lost"""
    timeout: float = float("inf")
    """When the caller is told ``error``, unless the answer has come"""
    error: Exception | None = None


class Waiting(NamedTuple):
    """A call, and who waits for it."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: Future[Any]


class SimWaiter:
    """Implements ``ha.membership.record.Waiter``: no caller blocks on it, and ``on_set`` is called when it is set."""

    def __init__(self) -> None:
        self.on_set: Callable[[], None] = lambda: None
        self._set = False

    def wait(self, timeout: float) -> bool:
        """The calls of a simulated thread wait before they are made (``SimCalls``)."""
        return self._set

    def set(self) -> None:
        if not self._set:
            self._set = True
            self.on_set()

    def is_set(self) -> bool:
        return self._set


class SimCalls(Executor):
    """``plan`` is asked for each call, when it begins; one whose last argument is a waiter waits first, as
    ``Coordination.watch`` does. ``on_wait`` is told what ends such a wait early."""

    def __init__(
        self,
        world: World,
        loop: SimLoop,
        plan: Callable[[Callable[..., Any]], Plan],
        on_wait: Callable[[Callable[[], None]], None] = lambda end: None,
    ) -> None:
        self._world = world
        self._loop = loop
        self._plan = plan
        self._on_wait = on_wait
        self._waiting: deque[Waiting] = deque()

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # type: ignore[override]
        """Make this call after all before it."""
        future: Future[Any] = Future()
        self._waiting.append(Waiting(call, arguments, future))
        if len(self._waiting) == 1:
            self._begin()
        return future

    def wait(self, futures: Collection[Future[Any]], seconds: float) -> None:
        """Wait until these are done, or for so long; the world goes on meanwhile."""
        self._loop.wait(lambda: all(future.done() for future in futures), seconds)

    def waiter(self) -> SimWaiter:
        """For a call that waits."""
        return SimWaiter()

    def _begin(self) -> None:
        waiting = self._waiting[0]
        if waiting.arguments and isinstance(waiting.arguments[-1], SimWaiter):
            self._wait_first(waiting, *waiting.arguments)
        else:
            self._carry_out(waiting)

    def _wait_first(self, waiting: Waiting, after: int, seconds: float, waiter: SimWaiter) -> None:
        """As a store does that is looked at: once when the time is up, or when it says that there is something new."""
        over = False

        def end(carry_out: bool) -> None:
            nonlocal over
            if over:
                return
            over = True
            if carry_out:
                self._carry_out(waiting)
            else:
                self._end(waiting, None, None)

        if after == UNSEEN and not waiter.is_set():
            end(True)
            return
        waiter.on_set = lambda: self._loop.thread(0.0, lambda: end(False))
        if waiter.is_set():
            waiter.on_set()
        self._loop.thread(seconds, lambda: end(True))
        self._on_wait(lambda: self._loop.thread(0.0, lambda: end(True)))

    def _carry_out(self, waiting: Waiting) -> None:
        plan = self._plan(waiting.call)
        last = len(plan.lands) - 1

        def land(number: int) -> None:
            answer = outcome(waiting)
            if number == last and plan.answer is not None:
                self._loop.thread(plan.answer, lambda: self._end(waiting, *answer))

        for number, seconds in enumerate(plan.lands):
            self._world.after(seconds, lambda n=number: land(n))  # type: ignore[misc]
        if plan.error is not None:
            error = plan.error
            self._loop.thread(plan.timeout, lambda: self._end(waiting, None, error))

    def _end(self, waiting: Waiting, result: Any, error: Exception | None) -> None:
        """The first answer counts."""
        if waiting.future.done():
            return
        if error is not None:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(result)
        self._waiting.popleft()
        if self._waiting:
            self._begin()


def outcome(waiting: Waiting) -> tuple[Any, Exception | None]:
    """What a call gives, or raises."""
    try:
        return waiting.call(*waiting.arguments), None
    except Exception as error:
        return None, error
