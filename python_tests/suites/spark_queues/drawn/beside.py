"""A driver that was suspended, and that goes on beside the one that came in its place."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from python_tests.harness.crash_table import Broken
from python_tests.suites.spark_queues.drawn.points import AT, END, FAILED, GO

LONGEST = 240.0
"""Seconds in which its query has ended when it is awake: it waits for the other one, now and then, and gives up."""


class Beside:
    """``point``: where it was suspended, as ``run.Run`` calls it."""

    def __init__(self, driver: Any, told: Connection, point: str) -> None:
        self._driver = driver
        self._told = told
        self._point = point
        self._said: list[str] = []
        self._ear = threading.Thread(target=self._listen, name="a driver beside", daemon=True)

    def wake(self) -> None:
        """From now on it goes from point to point without a stop, until its query ends."""
        os.kill(self._driver.pid, signal.SIGCONT)
        self._ear.start()

    def ended(self) -> list[str]:
        """With what its query has ended, when it has. Raises Broken if it does not, or if the driver died."""
        self._ear.join(LONGEST)
        if self._ear.is_alive():
            raise Broken("a driver that was woken does not come to its end")
        self._driver.join(30)
        if self._driver.exitcode != 0:
            raise Broken(f"a driver that was woken ended with {self._driver.exitcode}")
        return self._said

    def kill(self) -> None:
        """Whatever it is at."""
        self._driver.kill()
        self._driver.join()

    def _listen(self) -> None:
        try:
            if self._point in ("dry", "refusing"):  # its query had ended, and is not started again
                self._told.send(END)
                return
            if self._point != "still":
                self._told.send(GO)
            while True:
                kind, what, _ = self._told.recv()
                self._told.send(GO if kind == AT else END)
                if kind != AT:
                    self._said += [what] if kind == FAILED else []
                    return
        except (EOFError, OSError):
            return  # it is dead, and that is seen by its exit status
