"""The coordination record in a process of its own: a node that hangs never holds the lock of its file.

SQLite locks the file while it writes. A node that is stopped just then (SIGSTOP, a debugger, a machine that swaps)
would keep every other node from taking over. So the node asks this process, by one line of JSON for each call and one
for each answer; it ends when the node does.

The process itself may hang: stopped, or in a file system that does not answer. It is killed after a while and another
one is started, so that a node that has lost its lease meanwhile can take part again (``coordination_child_hangs``).
What it was asked for may have been done, or be done as it dies: the outcome is *unknown*. A process that does not even
die, because the kernel waits for the file system, gets no successor until it has: it holds the file's lock.

It also renews the lease of a primary that is in the middle of a long turn (``broker_plugin.coordination.renewer``), so
it must never go on when its node is gone. It sees the end of its input before anything else that it does, and looks
whose child it is before it renews; a node that is gone shows no turns either. The kernel is not asked to kill it with
its node (PR_SET_PDEATHSIG): that would be with the thread that has started it.

When all threads of the node have exited, it gives up the lease that the node had, and ends (``node_life``).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from broker_plugin.coordination.node_life import NodeLife, open_own_life
from broker_plugin.coordination.polling import Polling
from broker_plugin.coordination.renewer import Renewer
from broker_plugin.coordination.shared_watchdog import SharedWatchdog
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import (
    CasConflict,
    Coordination,
    CoordinationError,
    ForeignRecord,
    Record,
    Snapshot,
    Waiter,
)
from ha.membership.watchdog import Renewals
from recovery.compiled import SWITCH
from recovery.store.crash_points import VARIABLE, crash_point

ANSWER_SECONDS = 5.0
"""Ten times as long as SQLite waits for the file's lock; a lease is over long before."""
START_SECONDS = 30.0
"""The first answer has to wait for the interpreter."""
END_SECONDS = 1.0
"""In which a process that was killed, or whose input has ended, is expected to be gone."""
GLANCE_SECONDS = 0.2
"""Between looks whether the node still wants the answer."""
READ_BYTES = 64 << 10
"""Of an answer or of requests, at a time."""
PROCESS_NAME = "txha-record"
"""What `ps` and `top` show; the kernel keeps fifteen characters."""
NAME_FILE = Path("/proc/self/comm")
"""Of Linux: where a process writes its name"""
MODULE = (sys.executable, "-P", "-m")
"""Runs a module of ours. Without -P, Python looks for every module in the directory first in which the node was
started, where any user may be able to put one (``a_module_in_the_directory_of_the_start``)."""
GONE_SECONDS = 1.0
"""In which all threads of a node are expected to have exited once its input has ended; then its lease runs out."""
NO_RENEWALS = Renewals(1.0, 0.0)
"""Of a process that is not shown any turns"""


NEEDED = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "GLIBC_TUNABLES", SWITCH, VARIABLE}
NEEDED_KINDS = ("PYTHON", "LC_", "LD_", "MALLOC_")
"""Variables of the environment that the child is given, and how the names of others begin"""


class Request(msgspec.Struct):
    """A read, or with a record a compare-and-set, or with ``snapshot`` one of these; ``end``: nothing more is asked."""

    expected: int = 0
    record: Record | None = None
    snapshot: bool = False
    end: bool = False


class Reply(msgspec.Struct):
    """``record`` is what is there now; ``conflict``: it is of another version; ``error``: the outcome is unknown.

    ``foreign``: that is since the record is another cluster's. ``damage`` and ``content`` are those of a snapshot.
    """

    record: Record | None = None
    conflict: bool = False
    error: str = ""
    foreign: bool = False
    damage: str = ""
    content: bytes = b""


class ChildProcess:
    """A child process that keeps the record, which it is asked for. Calls block; use it from one thread.

    ``command``: its module and what that is given; the descriptor of ``watchdog``, which is closed in the end, and
    ``renewals`` follow: the child renews by them. ``what`` it keeps, for people. An answer that does not come within
    ``seconds`` is not waited for. The child is given ``descriptors``, and the variables ``needed`` beside those that
    every interpreter needs.
    """

    def __init__(
        self,
        command: Sequence[str],
        what: str,
        seconds: float = ANSWER_SECONDS,
        watchdog: SharedWatchdog | None = None,
        renewals: Renewals = NO_RENEWALS,
        descriptors: Sequence[int] = (),
        needed: Collection[str] = (),
    ) -> None:
        self._command = [*MODULE, *command]
        self._what = what
        self._watchdog = watchdog
        self._descriptors = tuple(descriptors)
        self._needed = frozenset(needed)
        if watchdog is not None:
            self._command += map(str, (watchdog.descriptor, renewals.every, renewals.hung_after))
            self._descriptors += (watchdog.descriptor,)
        self._life = open_own_life() if watchdog is not None and renewals.released_for else None
        if self._life is not None:
            self._command.append(str(self._life))
            self._descriptors += (self._life,)
        self._seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._answered = False
        self._hung: subprocess.Popen[bytes] | None = None
        self._given_up = False

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

    def snapshot(self) -> Snapshot:
        """As the port says."""
        reply = self._ask(Request(snapshot=True))
        return Snapshot(
            reply.record.version if reply.record is not None else 0, reply.record, reply.damage, reply.content
        )

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            assert child.stdin is not None and child.stdout is not None
            with suppress(OSError):  # it has ended by itself
                child.stdin.write(msgspec.json.encode(Request(end=True)) + b"\n")
            child.stdin.close()
            if not _gone(child):
                self._kill(child)
            child.stdout.close()
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.close()
        life, self._life = self._life, None
        if life is not None:
            os.close(life)

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
            raise CoordinationError(f"the process that keeps {self._what} {what}; it is started again")
        self._answered = True
        reply = msgspec.json.decode(line, type=Reply)
        if reply.foreign:
            raise ForeignRecord(reply.error)
        if reply.error:
            raise CoordinationError(reply.error)
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        if self._hung is not None and self._hung.poll() is None:
            raise CoordinationError(f"the process that keeps {self._what} hangs, and cannot be killed")
        self._hung = None
        if self._child is None:
            self._answered = False
            self._child = self._started()
        return self._child

    def _started(self) -> subprocess.Popen[bytes]:
        """A fresh interpreter: it has no thread, no lock and no descriptor of this process but those that it is given.

        In a session of its own: a signal to all of a terminal or a group is the node's to answer, and the process ends
        with the node.
        """
        try:
            return subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                pass_fds=self._descriptors,
                env=environment_of_child(os.environ, self._needed),
            )
        except OSError as error:  # no descriptor, no memory, too many processes
            raise CoordinationError(
                f"the process that keeps {self._what} cannot be started ({error.strerror}); it is tried again"
            ) from error

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


class CoordinationProcess(ChildProcess):
    """A coordination store in one SQLite file, in a child process."""

    def __init__(
        self,
        path: Path,
        cluster: str,
        seconds: float = ANSWER_SECONDS,
        watchdog: SharedWatchdog | None = None,
        renewals: Renewals = NO_RENEWALS,
    ) -> None:
        command = ("broker_plugin.coordination.coordination_process", str(path), cluster)
        super().__init__(command, "the coordination file", seconds, watchdog, renewals)
        self._polling = Polling(self.read)
        self._file = SqliteCoordination(path, cluster)

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As the port says; each look is a call of its own, so a change waits for one at most."""
        return self._polling.watch(after, seconds, waiter)

    def snapshot(self) -> Snapshot:
        """As the port says, without the child: it works on a copy of the file, and locks nothing."""
        return self._file.snapshot()


def environment_of_child(environment: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """What an interpreter needs of this environment, and ``also`` these: no secret else, of ours or other programs."""
    return {
        name: value
        for name, value in environment.items()
        if name in NEEDED or name in also or name.startswith(NEEDED_KINDS)
    }


def _gone(child: subprocess.Popen[bytes]) -> bool:
    """Whether it ends within a moment."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(END_SECONDS)
    return child.returncode is not None


def answer(store: Coordination, renewer: Renewer | None, request: Request) -> Reply:
    """Carry out one request."""
    try:
        if request.snapshot:
            found = store.snapshot()
            return Reply(found.record, damage=found.damage, content=found.content)
        if request.record is None:
            return Reply(store.read())
        changed = store if renewer is None else renewer
        return Reply(changed.compare_and_set(request.expected, request.record))
    except CasConflict as conflict:
        return Reply(conflict.current, conflict=True)
    except ForeignRecord as error:
        return Reply(error=str(error), foreign=True)
    except CoordinationError as error:
        return Reply(error=str(error))


def lines(descriptor: int, due_in: Callable[[], float | None]) -> Iterator[bytes | None]:
    """What comes from the descriptor, line by line, until its end; None when ``due_in`` has passed without any."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    begun = b""
    while True:
        seconds = due_in()
        if not poll.poll(None if seconds is None else seconds * 1000):
            yield None
            continue
        piece = os.read(descriptor, READ_BYTES)
        if not piece:
            return
        *whole, begun = (begun + piece).split(b"\n")
        yield from whole


def boottime() -> float:
    """Seconds on the clock that the node's lease is counted by."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def serve(
    made: Callable[[], Coordination], descriptor: str = "", every: str = "0", hung_after: str = "0", life: str = ""
) -> None:
    """Answer until the node asks no more, and renew meanwhile, by the watchdog behind ``descriptor``.

    ``made`` makes the store, with all that it needs. ``life``: the descriptor of a node whose lease is given up when
    it is gone.
    """
    node = os.getppid()
    # The node's to answer: it may be told by way of all of its processes, and gives its lease up with this one's help.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        NAME_FILE.write_text(PROCESS_NAME)
    store = made()
    renewer = None
    if descriptor:
        turns = SharedWatchdog(int(descriptor))
        renewer = Renewer(store, turns, Renewals(float(every), float(hung_after)), boottime)
    for line in lines(sys.stdin.fileno(), (lambda: None) if renewer is None else renewer.due_in):
        if line is None:
            if os.getppid() != node:
                break
            assert renewer is not None
            renewer.renew()
            continue
        request = msgspec.json.decode(line, type=Request)
        if request.end:
            renewer = None
            break
        reply = answer(store, renewer, request)
        try:
            os.write(sys.stdout.fileno(), msgspec.json.encode(reply) + b"\n")
        except BrokenPipeError:  # the node was killed meanwhile; what it asked for is done or not, as ever
            break
    if renewer is not None and life and NodeLife(int(life)).gone(GONE_SECONDS):
        renewer.release()
    store.close()


def main(path: str, cluster: str, *renewing: str) -> None:
    """Serve the record in an SQLite file."""
    serve(lambda: SqliteCoordination(Path(path), cluster, confirm=True), *renewing)


if __name__ == "__main__":
    main(*sys.argv[1:])
