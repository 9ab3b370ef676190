"""The driver of a case: a process that says at which point it stands, and waits for an answer there."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from python_tests.harness.crash_table import Broken
from python_tests.suites.spark_queues.drawn.beside import Beside
from python_tests.suites.spark_queues.drawn.engine import Job, drive
from python_tests.suites.spark_queues.drawn.points import AT, END, GO
from txobserver.xid import Xid


class Driver:
    """One after the other. ``trace`` is told what it says.

    ``count``: how many there were. ``points``: at how many points they stood. ``answer``: what it is told next.
    """

    def __init__(self, trace: list[str]) -> None:
        self.count = 0
        self.points = 0
        self.answer = GO
        self._trace = trace
        self._process: Any = None
        self._told: Connection

    def start(self, job: Job) -> None:
        """Another one, as a process of its own."""
        self._told, its = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=drive, args=(job, its))
        self._process.start()
        its.close()
        self.count += 1

    def kill(self) -> None:
        """SIGKILL, if there is one."""
        if self._process is not None:
            self._told.close()
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.join()
            self._process = None

    def stop(self) -> None:
        """Where it waits for an answer."""
        self._told.send(END)
        self._process.join(30)
        assert self._process.exitcode == 0, f"the driver ended with {self._process.exitcode}"
        self._told.close()
        self._process = None

    def suspend(self, point: str) -> Beside:
        """SIGSTOP at this point; it may go on beside the next one."""
        os.kill(self._process.pid, signal.SIGSTOP)
        found, self._process = Beside(self._process, self._told, point), None
        return found

    def next(self, seconds: float) -> tuple[str, Any, Xid | None] | None:
        """What it says, which waits for an answer then; None if it says nothing for so long. Raises Broken."""
        if not self._told.poll(seconds):
            self._trace.append("says nothing")
            return None
        try:
            kind, what, xid = self._told.recv()
        except EOFError:
            raise Broken("the driver ended by itself") from None
        self.points += kind == AT
        self._trace.append(f"{kind} {what}")
        return kind, what, xid

    def go_on(self) -> None:
        """It is answered, and the next answer is that it may go on."""
        self._told.send(self.answer)
        self.answer = GO
