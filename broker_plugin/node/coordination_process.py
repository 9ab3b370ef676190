"""The coordination file in a process of its own: a node that hangs never holds the file's lock.

SQLite locks the file while it writes. A node that is stopped just then (SIGSTOP, a debugger, a machine that swaps)
would keep everybody else from taking over. So the node asks this process, by one line of JSON for each call and one
for each answer; it ends when the node does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from broker_plugin.node.sqlite_coordination import SqliteCoordination
from ha.coordination import CasConflict, CoordinationError, Record
from recovery.crash_points import crash_point


class Request(msgspec.Struct):
    """A read, or with a record a compare-and-set."""

    expected: int = 0
    record: Record | None = None


class Reply(msgspec.Struct):
    """``record`` is what is there now; ``conflict``: it is of another version; ``error``: the outcome is unknown."""

    record: Record | None = None
    conflict: bool = False
    error: str = ""


class CoordinationProcess:
    """A coordination store in one SQLite file, used through a child process. Calls block; use it from one thread."""

    def __init__(self, path: Path, cluster: str) -> None:
        self._command = [sys.executable, "-m", "broker_plugin.node.coordination_process", str(path), cluster]
        self._child: subprocess.Popen[bytes] | None = None

    def read(self) -> Record | None:
        """The record, or None before the first. Raises CoordinationError."""
        return self._ask(Request()).record

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """Store the record as the version after ``expected``. Raises CasConflict, CoordinationError."""
        crash_point("cas.before")
        reply = self._ask(Request(expected, record))
        if reply.conflict:
            raise CasConflict(reply.record)
        assert reply.record is not None
        crash_point("cas.committed")
        return reply.record

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.communicate()

    def _ask(self, request: Request) -> Reply:
        if self._child is None:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(msgspec.json.encode(request) + b"\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except OSError:
            line = b""
        if not line:
            self._child = None
            child.kill()
            child.wait()
            raise CoordinationError("the process that keeps the coordination file has ended; it is started again")
        reply = msgspec.json.decode(line, type=Reply)
        if reply.error:
            raise CoordinationError(reply.error)
        return reply


def answer(store: SqliteCoordination, request: Request) -> Reply:
    """Carry out one request."""
    try:
        if request.record is None:
            return Reply(store.read())
        return Reply(store.compare_and_set(request.expected, request.record))
    except CasConflict as conflict:
        return Reply(conflict.current, conflict=True)
    except CoordinationError as error:
        return Reply(error=str(error))


def main(path: str, cluster: str) -> None:
    """Answer until there is nobody who asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store = SqliteCoordination(Path(path), cluster)
    for line in sys.stdin.buffer:
        reply = answer(store, msgspec.json.decode(line, type=Request))
        try:
            os.write(sys.stdout.fileno(), msgspec.json.encode(reply) + b"\n")
        except BrokenPipeError:  # the node was killed meanwhile; what it asked for is done or not, as ever
            break
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
