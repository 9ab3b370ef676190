"""Run something in a forked child, because it may end its process."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path

from recovery.store.parent import end_with
from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError

TEXT_BYTES = 4096
"""Of what the child says; a pipe holds more, so the child never waits for its parent."""
STANDARD = 3
"""Descriptors that the child keeps beside its pipe: who closes 2 lets a library's last words go into a file."""
_DAMAGE = (-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGFPE, -signal.SIGABRT)
"""What a damaged page does to who follows it. Any other end is of the machine, or of an operator."""


def in_a_child(job: Callable[[], None], what: Path) -> None:
    """Run ``job``, which looks at ``what``, in a forked child and wait for it.

    Raises StoreError as it did, StoreDamaged if the child died as of a damaged page, StoreBusy if it ended otherwise or
    could not be started: that says nothing about ``what``. The child has one thread and a copy of this process's
    memory; what ``job`` leaves behind there is gone with it. It has no descriptor of its parent, whose locks it would
    hold, and ends with it.
    """
    parent = os.getpid()
    try:
        reading, writing, pid = _forked()
    except OSError as error:  # no descriptor, no memory, too many processes
        raise _not_checked(what, error.strerror or str(error)) from error
    if pid == 0:
        status = 3
        try:
            _become_a_child(parent, writing)
            status = _outcome(job, writing)
        finally:  # whatever it fails with, a parent that has gone included: it must not go on as its parent would
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 1:
        raise StoreDamaged(text)
    if status == 2:
        raise StoreError(text)
    if status in _DAMAGE:
        raise StoreDamaged(f"reading it ended by signal {-status}")
    if status == 4:
        raise StoreBusy(text)
    if status != 0:
        text = text or (f"ended by signal {-status}" if status < 0 else f"ended with status {status}")
        raise _not_checked(what, text)


def _not_checked(what: Path, why: str) -> StoreBusy:
    return StoreBusy(f"{what} could not be checked ({why}); start again")


def _forked() -> tuple[int, int, int]:
    """Both ends of a pipe, and the child's process id, which is 0 there. Raises OSError, with nothing left open."""
    reading, writing = os.pipe()
    try:
        return reading, writing, os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise


def _become_a_child(parent: int, writing: int) -> None:
    end_with(parent)
    # A supervisor that wants the parent to end may tell all its processes: the parent ends in order, and this one with
    # it. Its event loop is not to be woken from here, and the descriptor for that is closed in a moment.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(STANDARD, writing)
    os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))


def _outcome(job: Callable[[], None], writing: int) -> int:
    faulthandler.disable()  # the parent says what happened
    try:
        job()
    except BaseException as error:
        known = isinstance(error, StoreError)
        text = str(error) if known else f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        os.write(writing, text.encode()[:TEXT_BYTES])
        return 1 if isinstance(error, StoreDamaged) else 4 if isinstance(error, StoreBusy) else 2 if known else 3
    return 0
