"""A thread that carries out jobs in order and reports each back to the event loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from txobserver.ports.store import StoreError

Job = Callable[[], None]
Report = Callable[[StoreError | None], None]
Post = Callable[[Callable[[], None]], None]


def carry_out(job: Job) -> StoreError | None:
    """Do it; returns what went wrong, as an error of the store whatever it was."""
    try:
        job()
    except StoreError as error:
        return error
    except Exception as error:
        return StoreError(f"{type(error).__name__}: {error}")
    return None


class Worker:
    """Jobs in order, in a thread of its own. ``post`` brings a call back to the event loop."""

    def __init__(self, name: str, post: Post) -> None:
        self._post = post
        self._jobs: queue.SimpleQueue[tuple[Job, Report] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job, done: Report) -> None:
        """Carry out ``job`` after all before it, then call ``done`` in the event loop."""
        self._jobs.put((job, done))

    def stop(self, seconds: float) -> bool:
        """Finish what was submitted, then end the thread; False if that has not been done after so many seconds."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            outcome = carry_out(job)
            self._post(lambda done=done, outcome=outcome: done(outcome))  # type: ignore[misc]
