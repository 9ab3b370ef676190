"""What the terminal of ``txha cluster`` shows: its own lines, and the changes of state in the nodes' log files.

Nodes write their log files themselves. If their output went through a pipe of the supervisor, a terminal that is
not read (or a supervisor that is stopped) would fill the pipe, and every node would stand still at its next line.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

from txobserver.printable import printable

EVERY_SECONDS = 0.1
END_SECONDS = 1.0
STATE_EVENTS = {"state_changed", "following_primary", "stepping_down", "backup_ready", "out_of_ready_set"}
"""What of a log in JSON is shown, beside warnings and errors: the same as of one in text"""
STATE_MARKS = (" state ", " following ", " stepping down", " is ready", " out of the ready set", " ERROR ", " WARNING ")


def is_told(line: str) -> bool:
    """Whether a line of a node's log is shown on the terminal: a change of state, a warning, or why it ends."""
    if not line.startswith("{"):
        return line.startswith("txha: ") or any(mark in line for mark in STATE_MARKS)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return found.get("event") in STATE_EVENTS or found.get("level") in ("warning", "error", "critical")


class LogTail:
    """New whole lines of a file that another process appends to, from where it ended when this was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """The lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0  # it has been emptied
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


class Echo:
    """Writes to a descriptor in a thread of its own, so that the caller does not wait for a terminal."""

    def __init__(self, descriptor: int, logs: dict[str, Path]) -> None:
        self._descriptor = descriptor
        self._tails = {name: LogTail(path) for name, path in logs.items()}
        self._said: SimpleQueue[str] = SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """A line of the supervisor's own."""
        self._said.put(line)

    def end(self) -> None:
        """Show what is left, with a short patience."""
        self._ended.set()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._ended.wait(EVERY_SECONDS)
            for name, tail in self._tails.items():
                for line in tail.lines():
                    if is_told(line):
                        self._write(f"[{name}] {printable(line)}")
            with contextlib.suppress(Empty):
                while True:
                    self._write(self._said.get_nowait())

    def _write(self, line: str) -> None:
        data = memoryview(line.encode(errors="replace") + b"\n")
        with contextlib.suppress(OSError):  # the terminal is gone
            while data:
                data = data[os.write(self._descriptor, data) :]
