"""ThreadLines: tasks for threads stand in lines, which take turns, so that a long line holds up no other one."""

from __future__ import annotations

from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from broker_plugin.guard import Guard


class Task(Protocol):
    """Something that takes longer than a turn of the loop may."""

    @property
    def wanted(self) -> bool:
        """Whether it is to be done still, now that its turn has come."""
        ...

    def work(self) -> Any:
        """In a thread."""
        ...

    def done(self, result: Any) -> None:
        """On the loop, with what ``work`` has given."""
        ...

    def dropped(self) -> None:
        """On the loop: it was not wanted any more, and is not done."""
        ...


class ThreadLines:
    """``most``: how many tasks are done at a time."""

    def __init__(self, guard: Guard, most: int) -> None:
        self._guard = guard
        self._most = most
        self._executor = ThreadPoolExecutor(most, "txha-passwords")
        self._lines: OrderedDict[str, deque[Task]] = OrderedDict()
        self._running = 0

    def put(self, line: str, task: Task) -> None:
        """At the end of this line."""
        self._lines.setdefault(line, deque()).append(task)
        self._start()

    def stop(self) -> None:
        """Do nothing more."""
        self._lines.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        while self._running < self._most and (task := self._next()) is not None:
            self._running += 1
            self._begin(task)

    def _begin(self, task: Task) -> None:
        self._guard.run_in_executor(self._executor, task.work, lambda future: self._done(task, future.result()))

    def _next(self) -> Task | None:
        """The first of the line whose turn it is, that is still wanted."""
        while self._lines:
            name, line = self._lines.popitem(last=False)
            while line:
                task = line.popleft()
                if task.wanted:
                    if line:
                        self._lines[name] = line  # behind all others
                    return task
                task.dropped()
        return None

    def _done(self, task: Task, result: Any) -> None:
        self._running -= 1
        task.done(result)
        self._start()
