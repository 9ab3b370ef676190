"""The coordination file in a process of its own: a node that hangs never holds the file's lock.

SQLite locks the file while it writes. A node that is stopped just then (SIGSTOP, a debugger, a machine that swaps)
would keep every other node from taking over. So the node asks this process, by one line of JSON for each call and one
for each answer; it ends when the node does.

The process itself may hang: stopped, or in a file system that does not answer. It is killed after a while and another
one is started, so that a node that has lost its lease meanwhile can take part again (``coordination_child_hangs``).
What it was asked for may have been done, or be done as it dies: the outcome is *unknown*. A process that does not even
die, because the kernel waits for the file system, gets no successor until it has: it holds the file's lock.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from broker_plugin.coordination.polling import Polling
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import CasConflict, CoordinationError, Record, Snapshot, Waiter
from recovery.store.crash_points import crash_point

ANSWER_SECONDS = 5.0
"""Ten times as long as SQLite waits for the file's lock; a lease is over long before."""
START_SECONDS = 30.0
"""The first answer has to wait for the interpreter."""
END_SECONDS = 1.0
"""In which a process that was killed, or whose input has ended, is expected to be gone."""
GLANCE_SECONDS = 0.2
"""Between looks whether the node still wants the answer."""
READ_BYTES = 64 << 10
"""Of an answer, at a time."""


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
    """A coordination store in one SQLite file, used through a child process. Calls block; use it from one thread.

    An answer that does not come within ``seconds`` is not waited for.
    """

    def __init__(self, path: Path, cluster: str, seconds: float = ANSWER_SECONDS) -> None:
        self._command = [sys.executable, "-m", "broker_plugin.coordination.coordination_process", str(path), cluster]
        self._seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._answered = False
        self._hung: subprocess.Popen[bytes] | None = None
        self._given_up = False
        self._polling = Polling(self.read)
        self._file = SqliteCoordination(path, cluster)

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

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As the port says; each look is a call of its own, so a change waits for one at most."""
        return self._polling.watch(after, seconds, waiter)

    def snapshot(self) -> Snapshot:
        """As the port says, without the child: it works on a copy of the file, and locks nothing."""
        return self._file.snapshot()

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.close()
            if not _gone(child):
                self._kill(child)
            child.stdout.close()

    def give_up(self) -> None:
        """From any thread: answers are not wanted any more, neither to a call that is on its way nor to later ones."""
        self._given_up = True

    def _ask(self, request: Request) -> Reply:
        child = self._running()
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(msgspec.json.encode(request) + b"\n")
            line = self._answer_of(child.stdout.fileno(), self._seconds if self._answered else START_SECONDS)
        except OSError:
            line = b""
        if not line:
            self._end(child)
            what = "has ended" if line is not None else "gives no answer and was killed"
            raise CoordinationError(f"the process that keeps the coordination file {what}; it is started again")
        self._answered = True
        reply = msgspec.json.decode(line, type=Reply)
        if reply.error:
            raise CoordinationError(reply.error)
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        if self._hung is not None and self._hung.poll() is None:
            raise CoordinationError("the process that keeps the coordination file hangs, and cannot be killed")
        self._hung = None
        if self._child is None:
            self._answered = False
            self._child = subprocess.Popen(
                self._command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        return self._child

    def _answer_of(self, descriptor: int, seconds: float) -> bytes | None:
        """A line; empty if the child has ended, None if it has not answered in time."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        line, until = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            # Looked at before: a node that was stopped meanwhile finds the answer that came in time.
            late = self._given_up or time.monotonic() >= until
            if poll.poll(GLANCE_SECONDS * 1000):
                piece = os.read(descriptor, READ_BYTES)
                if not piece:
                    return b""
                line += piece
            elif late:
                return None
        return line

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        self._child = None
        self._kill(child)
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()

    def _kill(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        if not _gone(child):
            self._hung = child


def _gone(child: subprocess.Popen[bytes]) -> bool:
    """Whether it ends within a moment."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(END_SECONDS)
    return child.returncode is not None


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
    """Answer until its node asks no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store = SqliteCoordination(Path(path), cluster, confirm=True)
    for line in sys.stdin.buffer:
        reply = answer(store, msgspec.json.decode(line, type=Request))
        try:
            os.write(sys.stdout.fileno(), msgspec.json.encode(reply) + b"\n")
        except BrokenPipeError:  # the node was killed meanwhile; what it asked for is done or not, as ever
            break
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
