"""Who works when: processes in turn, on virtual time, by lot; the same lot, the same turns.

Each process is a thread, of which one runs at a time: it hands the turn on at its steps, and where it waits. A process
that was killed is told at its next step, and does nothing any more, its handlers neither.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

SWITCH = 0.3
"""How likely a step hands the turn on."""
STEP_SECONDS = 0.001
"""By which every step takes the clock on"""


class Killed(BaseException):
    """The process that made this step is no more."""


class Stuck(Exception):
    """A process waits for what no other will do."""


class Process:
    """``user``: of the system. ``skew``: seconds by which its clock is wrong. ``let_go``: told when it has ended."""

    def __init__(self, name: str, user: str = "root", machine: str = "", skew: float = 0.0) -> None:
        self.name = name
        self.user = user
        self.machine = machine
        self.skew = skew
        self.alive = True
        self.done = False
        self.let_go: list[Callable[[], None]] = []
        self.turn = threading.Lock()
        self.turn.acquire()
        self.until: tuple[Callable[[], bool], float | None] | None = None

    def __repr__(self) -> str:
        return self.name


class Schedule:
    """``now``: seconds since 1970, of the true clock. ``ahead``: by which a machine's was set forward meanwhile."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 1.7e9
        self.ahead: dict[str, float] = {}
        self.steps = 0
        self.processes: list[Process] = []
        self.failed: list[tuple[Process, BaseException]] = []
        self.current: Process | None = None
        self._main = threading.Lock()
        self._main.acquire()

    def spawn(self, process: Process, work: Callable[[], None]) -> Process:
        """It works when its turn comes."""

        def run() -> None:
            process.turn.acquire()
            try:
                if process.alive:
                    work()
            except Killed:
                pass
            except BaseException as error:
                self.failed.append((process, error))
            self._end(process)

        self.processes.append(process)
        threading.Thread(target=run, daemon=True, name=process.name).start()
        return process

    def _end(self, process: Process) -> None:
        process.done = True
        self.current = None
        for each in process.let_go:
            each()
        process.let_go.clear()
        self._hand_on(None)

    def run(self) -> None:
        """Until every process has ended. Raises Stuck."""
        if self._hand_on(None):
            self._main.acquire()
        left = [each for each in self.processes if not each.done]
        if left:
            raise Stuck(f"no process can go on: {left}")
        self.processes.clear()

    def _hand_on(self, mine: Process | None) -> bool:
        """Whose turn it is now; whether there is one. ``mine`` waits until it is his again."""
        following = self._next()
        if following is mine and mine is not None:
            return True
        self.current = following
        if following is not None:
            following.turn.release()
        elif mine is not None or any(not each.done for each in self.processes) or self.processes:
            self._main.release()
        if mine is not None:
            mine.turn.acquire()
        return following is not None

    def _next(self) -> Process | None:
        while True:
            left = [each for each in self.processes if not each.done]
            ready = [each for each in left if self._is_ready(each)]
            if ready:
                return self.chance.choice(ready)
            deadlines = [each.until[1] for each in left if each.until is not None and each.until[1] is not None]
            if not deadlines:
                return None
            self.now = max(self.now, min(deadlines))

    def _is_ready(self, process: Process) -> bool:
        if process.until is None or not process.alive:
            return True
        condition, deadline = process.until
        return condition() or (deadline is not None and self.now >= deadline)

    # -- for the process that has the turn

    def step(self) -> None:
        """One step of the process whose turn it is. Raises Killed."""
        process = self.current
        if process is None:  # the tester itself
            return
        self.steps += 1
        self.now += STEP_SECONDS
        if process.alive and self.chance.random() < SWITCH:
            self._hand_on(process)
        self.check()

    def check(self) -> None:
        """Raises Killed if the process whose turn it is has been."""
        if self.current is not None and not self.current.alive:
            raise Killed

    def wait(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Until the condition holds, or for so many seconds; whether it holds. Raises Killed."""
        process = self.current
        if process is None:
            return condition()
        self.check()
        process.until = condition, None if seconds is None else self.now + seconds
        try:
            self._hand_on(process)
            self.check()
            return condition()
        finally:
            process.until = None

    def kill(self, process: Process) -> None:
        """It does nothing any more."""
        process.alive = False


class VirtualTime:
    """In the place of the module ``time``, for the process that has the turn."""

    CLOCK_BOOTTIME = 7

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def time(self) -> float:
        """Seconds since 1970, by the clock of the process."""
        current = self._schedule.current
        now, ahead = self._schedule.now, self._schedule.ahead
        return now + (0.0 if current is None else current.skew + ahead.get(current.machine, 0.0))

    def monotonic(self) -> float:
        """Seconds since some time."""
        return self._schedule.now

    def clock_gettime(self, clock: int) -> float:
        """The same."""
        return self._schedule.now

    def sleep(self, seconds: float) -> None:
        """Others work meanwhile."""
        self._schedule.wait(lambda: False, seconds)


class VirtualLocks:
    """In the place of the module ``fcntl``: who waits for a lock lets others work."""

    def __init__(self, schedule: Schedule, real: Any) -> None:
        self._schedule = schedule
        self._real = real
        self.LOCK_EX, self.LOCK_UN = real.LOCK_EX, real.LOCK_UN

    def flock(self, descriptor: int, what: int) -> None:
        """As the system's."""
        if what == self.LOCK_UN:
            self._real.flock(descriptor, what)
            return

        def taken() -> bool:
            try:
                self._real.flock(descriptor, what | self._real.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        self._schedule.step()
        while not taken():
            self._schedule.wait(lambda: False, 0.01)
