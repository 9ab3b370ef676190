"""There is one log: however it is named, whichever process is forked, and whichever has made it smaller."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import pytest

from recovery.coordinator import log_file as log_file_module
from recovery.coordinator import log_lines
from recovery.coordinator.decision_log import DecisionLog, read_decisions
from recovery.coordinator.decisions import DecisionRefused
from recovery.coordinator.resources import Participant
from recovery.store.files import Files
from txobserver.ports.store import StoreError

WHO = [Participant("postgresql:1/bank", "database", "77"), Participant("amqp:c", "broker")]
NO_USER = 65534
NAMES = (f"t.{number}" for number in count())
SMALL = 2000
"""Bytes by which a log grows here before it is made smaller"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "decisions.log"


@pytest.fixture(autouse=True)
def _forget_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "ENDED_KEPT", 0.0)


def grow(log: DecisionLog) -> None:
    """So that it would be made smaller, several times."""
    for name in islice(NAMES, 40):
        log.decide(name, True, WHO)
        log.finish(name)


def linked(path: Path, tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    link = tmp_path / "etc" / "d.log"
    link.symlink_to(path)
    return link


def test_a_log_named_by_a_symbolic_link_is_one_log(path: Path, tmp_path: Path) -> None:
    """Its coordinators name it by the link, the recovery run names the file."""
    run = DecisionLog(path)
    coordinator = DecisionLog(linked(path, tmp_path), compact_bytes=SMALL)
    before = path.stat()
    grow(coordinator)
    assert coordinator.path.is_symlink() and path.stat().st_ino != before.st_ino
    assert coordinator.decide("t1", True, WHO) is True
    for each in (run, DecisionLog(path)):
        assert each.decide("t1", False) is True
    assert os.listdir(path.parent) == [path.name]


def test_a_link_that_leads_nowhere_begins_no_log(path: Path, tmp_path: Path) -> None:
    link = linked(path, tmp_path)
    with pytest.raises(StoreError, match="leads nowhere"):
        DecisionLog(link)
    assert os.listdir(link.parent) == [link.name]


def test_a_link_that_leads_to_another_log_is_refused(path: Path, tmp_path: Path) -> None:
    """Its transactions would hang on a log that no run looks for them in."""
    DecisionLog(path).close()
    log = DecisionLog(linked(path, tmp_path))
    other = DecisionLog(tmp_path / "other")
    log.path.unlink()
    log.path.symlink_to(other.path)
    with pytest.raises(DecisionRefused, match="another log"):
        log.decide("t1", True, WHO)
    assert other.decision("t1") is None


def test_a_log_with_a_second_name_is_one_log(path: Path, tmp_path: Path) -> None:
    """It is not made smaller, but for what a process left that was killed while it made the log."""
    DecisionLog(path).close()
    hard = tmp_path / "hard"
    os.link(path, hard)
    log, other = DecisionLog(path, compact_bytes=SMALL), DecisionLog(hard, compact_bytes=SMALL)
    grow(log)
    grow(other)
    assert log.decide("t1", True, WHO) is True and other.decide("t1", False) is True
    hard.unlink()
    os.link(path, path.with_name(f".{path.name}.{'0' * 16}"))
    size = path.stat().st_size
    grow(DecisionLog(path, compact_bytes=SMALL))
    assert path.stat().st_size < size and os.listdir(path.parent) == [path.name]


def test_an_old_file_of_the_log_decides_nothing(path: Path, tmp_path: Path) -> None:
    """It is reached still where a container has mounted the file rather than its directory."""
    log = DecisionLog(path, compact_bytes=SMALL)
    mounted = tmp_path / "mounted"
    log.decide("t1", True, WHO)
    with path.open("rb") as old:
        grow(log)
        mounted.write_bytes(old.read())
    for ask in (DecisionLog, read_decisions):
        with pytest.raises(StoreError, match="goes on in a new one"):
            ask(mounted)
    assert DecisionLog(path).decision("t1") is not None


def test_a_decision_whose_file_is_replaced_before_its_sync(path: Path) -> None:
    """Another process makes the log smaller, and another thread of ours opens the new file, which is durable."""
    lower = os.open(os.devnull, os.O_RDONLY)
    log = DecisionLog(path)
    grow(log)
    file = log._file
    sync = file.sync

    def overtaken(end: tuple[int, int]) -> None:
        file.sync = sync  # type: ignore[method-assign]
        grow(DecisionLog(path, compact_bytes=SMALL))
        os.close(lower)  # for the new file, so that the number of the old one's descriptor is free
        found = log.decision("t1")
        assert found is not None and found.commit
        sync(end)

    file.sync = overtaken  # type: ignore[method-assign]
    assert log.decide("t1", True, WHO) is True
    assert log.decide("t2", True, WHO) is True


def test_a_log_that_has_become_shorter_decides_nothing(path: Path) -> None:
    """A copy of yesterday was put over it while it was open. What it has lost may be what is asked for."""
    log = DecisionLog(path)
    yesterday = path.read_bytes()
    log.decide("t1", True, WHO)
    path.write_bytes(yesterday)
    for _ in range(2):
        with pytest.raises(DecisionRefused, match="has become shorter"):
            log.decide("t1", False)
    assert path.read_bytes() == yesterday


def test_compaction_leaves_the_log_to_whom_it_belongs(path: Path) -> None:
    """A recovery run of root's makes it smaller, and the application goes on."""
    DecisionLog(path).close()
    owner = NO_USER if os.getuid() == 0 else os.getuid()
    os.chown(path, owner, NO_USER if os.getuid() == 0 else -1)
    path.chmod(0o664)
    with path.open("rb") as old:  # or its number would be given to another file
        before = os.fstat(old.fileno())
        grow(DecisionLog(path, compact_bytes=SMALL))
        after = path.stat()
        assert after.st_ino != before.st_ino
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


class SomebodyElse(Files):
    """Files of a user who may not give a file away."""

    def take_access(self, descriptor: int, other: int) -> None:
        raise PermissionError(1, "Operation not permitted")


def test_who_cannot_leave_it_to_its_owner_leaves_it_as_it_is(path: Path) -> None:
    log = DecisionLog(path, compact_bytes=SMALL, files=SomebodyElse())
    before = path.stat()
    grow(log)
    assert path.stat().st_ino == before.st_ino and os.listdir(path.parent) == [path.name]
    grow(DecisionLog(path, compact_bytes=SMALL))
    assert path.stat().st_ino != before.st_ino


@pytest.mark.parametrize("mode", [fcntl.LOCK_EX, fcntl.LOCK_UN])
def test_an_interrupted_decision_keeps_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Ctrl-C comes just behind the lock, in a program that goes on: every other process would wait for it."""
    log, flock = DecisionLog(path), fcntl.flock

    def interrupted(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if operation == mode:
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(log_file_module.fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.decide("t1", True, WHO)
    with path.open("rb") as other:
        flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        flock(other, fcntl.LOCK_UN)
    assert log.decide("t2", True, WHO) is True
    assert DecisionLog(path).decision("t2") is not None


def in_child(work: Callable[[], bool]) -> int:
    """Fork, and work there; the child's process id."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # it may wait for ever, and has no parent that would notice
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    return child


def test_a_log_made_before_fork(path: Path) -> None:
    """As in a server that forks its workers when everything is made."""
    log = DecisionLog(path, compact_bytes=4 * SMALL)

    def work(child: int) -> bool:
        return all(log.decide(f"{child}.{number}", True, WHO) for number in range(100))

    children = [in_child(lambda child=child: work(child)) for child in range(4)]  # type: ignore[misc]
    assert all(log.decide(f"parent.{number}", True, WHO) for number in range(100))
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    for each in (log, DecisionLog(path)):
        assert len(each.unfinished()) == 500


def test_a_log_made_before_a_fork_in_the_middle_of_a_decision(path: Path) -> None:
    """The child has neither the thread that holds the lock, nor its lock."""
    inside, go_on = threading.Event(), threading.Event()

    def reached(step: str) -> None:
        if step == "decision written" and threading.current_thread() is thread:
            inside.set()
            go_on.wait(60)

    log = DecisionLog(path, reached=reached)
    thread = threading.Thread(target=log.decide, args=("thread", True, WHO))
    thread.start()
    inside.wait(60)
    child = in_child(lambda: log.decide("child", True, WHO))
    go_on.set()
    thread.join(60)
    assert os.waitpid(child, 0)[1] == 0
    assert set(log.unfinished()) == {"thread", "child"}


def test_a_closed_log_is_closed_in_a_child(path: Path) -> None:
    log = DecisionLog(path)
    log.close()

    def refused() -> bool:
        with pytest.raises(DecisionRefused, match="closed"):
            log.decide("t1", True, WHO)
        return True

    assert os.waitpid(in_child(refused), 0)[1] == 0
