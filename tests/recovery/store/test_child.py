"""A store is looked at in a child process: what becomes of each of its ends (``recovery.store.child``)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.compiled import SWITCH
from recovery.store.child import in_a_child
from recovery.store.identity import lock_directory
from tests.support.logs import Posts, open_store
from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError


def failing(error: Exception) -> Callable[[], None]:
    def job() -> None:
        raise error

    return job


HERE = Path("here")


def test_what_goes_well_says_nothing() -> None:
    in_a_child(lambda: None, HERE)


@pytest.mark.parametrize(
    "error", [StoreDamaged("a page is gone"), StoreError("no such file"), StoreBusy("a lock is held")]
)
def test_its_error_is_the_parent_s(error: StoreError) -> None:
    with pytest.raises(StoreError, match=str(error)) as raised:
        in_a_child(failing(error), HERE)
    assert type(raised.value) is type(error)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "MemoryError"),
        (OSError(errno.EMFILE, "Too many open files"), "OSError: .*Too many open files"),
        (ValueError("not a number"), "ValueError: not a number"),
    ],
)
def test_whatever_else_the_child_that_checks_fails_with_is_no_damage(error: Exception, said: str) -> None:
    with pytest.raises(StoreBusy, match=rf"^here could not be checked \({said}\); start again$"):
        in_a_child(failing(error), HERE)


@pytest.mark.parametrize(("what", "code"), [("pipe", errno.EMFILE), ("fork", errno.EAGAIN), ("fork", errno.ENOMEM)])
def test_a_check_that_no_child_can_be_made_for_says_nothing_about_the_store(
    what: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has too many processes, or no memory or descriptor: a node that is started again may have them."""
    open_store(tmp_path / "n", Posts()).close()
    held = len(os.listdir("/proc/self/fd"))

    def fails() -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, what, fails)
        with pytest.raises(StoreBusy, match=rf"state could not be checked \({os.strerror(code)}\); start again$"):
            open_store(tmp_path / "n", Posts())
    assert len(os.listdir("/proc/self/fd")) == held, "the pipe is closed, and the store's lock is let go of"
    open_store(tmp_path / "n", Posts()).close()


def test_a_child_that_can_say_nothing_is_waited_for_and_ends() -> None:
    """Its end of the pipe has gone before it fails; nor may it go on in its parent's place."""

    def job() -> None:
        os.closerange(3, 1024)
        time.sleep(0.2)
        raise StoreError("this is not heard")

    with pytest.raises(StoreBusy, match="ended with status 3"):
        in_a_child(job, HERE)


def test_a_child_that_checks_and_is_killed_says_nothing_about_the_store() -> None:
    """By an operator, or by a system that has no memory left: to discard a store for that would lose it."""
    with pytest.raises(StoreBusy, match=r"^here could not be checked \(ended by signal 9\); start again$"):
        in_a_child(lambda: os.kill(os.getpid(), signal.SIGKILL), HERE)


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT])
def test_a_child_that_dies_of_what_it_reads_is_damage(number: signal.Signals) -> None:
    with pytest.raises(StoreDamaged, match=f"ended by signal {number:d}"):
        in_a_child(lambda: os.kill(os.getpid(), number), HERE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_meant_for_the_node_does_not_end_its_check(number: signal.Signals) -> None:
    """A terminal, or a service manager, tells all processes of a node. Nor does its child wake its event loop."""
    woken, waking = os.pipe()
    for descriptor in (woken, waking):
        os.set_blocking(descriptor, False)
    before, handler = signal.set_wakeup_fd(waking), signal.signal(number, lambda *of: None)
    try:
        in_a_child(lambda: os.kill(os.getpid(), number), HERE)
        with pytest.raises(BlockingIOError):
            os.read(woken, 1)
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(number, handler)
        os.close(woken)
        os.close(waking)


def test_a_child_holds_no_descriptor_of_its_parent(tmp_path: Path) -> None:
    """A lock is let go of by the last process that has it open."""

    def job() -> None:
        held = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if int(name) > 2]
        raise StoreError(" ".join(os.readlink(each) for each in held if os.path.lexists(each)))

    lock = lock_directory(tmp_path)
    highest = os.dup2(lock, os.sysconf("SC_OPEN_MAX") - 1)
    try:
        with pytest.raises(StoreError, match=r"^pipe:\S+$"):
            in_a_child(job, HERE)
    finally:
        os.close(lock)
        os.close(highest)


SLOW_CHECK = """
import sys, time
from pathlib import Path
import recovery.store.lmdb_state
from tests.support.logs import Posts, open_store

def verify(self, meta):
    print("checking", flush=True)
    time.sleep(60)

recovery.store.lmdb_state.LmdbState.verify = verify
open_store(Path(sys.argv[1]), Posts())
"""


def test_a_node_that_is_killed_while_its_store_is_checked_can_be_started_again(tmp_path: Path) -> None:
    """The child has the parent's lock by its fork, and went on checking after the parent's death."""
    open_store(tmp_path / "n", Posts()).close()
    command = [sys.executable, "-c", SLOW_CHECK, str(tmp_path / "n")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, SWITCH: "pure"}) as node:
        assert node.stdout is not None and node.stdout.readline() == b"checking\n"
        node.kill()
        node.wait()
        open_store(tmp_path / "n", Posts()).close()
        assert node.stdout.read() == b"", "until its child has ended as well, this would not return"
