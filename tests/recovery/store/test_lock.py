"""The lock of a directory on a file system whose locks are other ones, and where nothing can be written."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from recovery.planner.apply import no_node_runs
from recovery.store.identity import lock_directory
from txobserver.ports.store import StoreBusy, StoreError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    os.close(lock_directory(tmp_path))
    return tmp_path


def like_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """flock(2): there an exclusive lock needs a descriptor that is open to write."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("create", [True, False])
def test_a_plan_is_made_on_nfs(directory: Path, monkeypatch: pytest.MonkeyPatch, create: bool) -> None:
    """It was told that every node runs."""
    like_nfs(monkeypatch)
    with no_node_runs({"a": directory}, create), pytest.raises(StoreBusy, match="is in use by another process"):
        lock_directory(directory, not create)
    lock = lock_directory(directory, create)
    with pytest.raises(StoreError, match="a is running"), no_node_runs({"a": directory}, create):
        raise AssertionError
    os.close(lock)


@pytest.mark.parametrize("create", [True, False])
def test_a_lock_that_fails_otherwise_is_not_said_to_be_held(
    directory: Path, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreError, match=r"cannot be locked, so whether it is in use is not known: .*No locks") as told:
        lock_directory(directory, create)
    assert not isinstance(told.value, StoreBusy) and len(os.listdir("/proc/self/fd")) == open_before


def test_whoever_only_looks_locks_where_nothing_can_be_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is made of stores on a disk that is mounted to read, too."""
    real, asked = os.open, list[int]()

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        asked.append(flags)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    lock = lock_directory(directory, create=False)
    with pytest.raises(StoreBusy):
        lock_directory(directory, create=False)
    os.close(lock)
    with pytest.raises(StoreError, match="cannot be written"):
        lock_directory(directory)


@pytest.mark.parametrize(
    ("error", "how"), [(errno.EROFS, "mount it writable"), (errno.EACCES, "let this user write there")]
)
def test_what_cannot_be_written_is_told_with_what_to_do(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: int, how: str
) -> None:
    def refused(path: Path, flags: int, mode: int = 0o777) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StoreError, match=rf" cannot be written \({os.strerror(error)}\); {how} and start again$"):
        lock_directory(directory)


def test_without_a_lock_file_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        lock_directory(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []
