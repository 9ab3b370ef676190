"""The file operations that the log rests on, in one place, so that tests can make them fail, or crash between them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from recovery.store.crash_points import crash_point
from txobserver.ports.store import StoreBusy, StoreError, StoreFull

REWRITE_BYTES = 1 << 20
"""Read and written at a time"""
WRITE_BUFFERS = 512
"""Handed to the system at a time; Linux takes up to 1,024."""
FILE_MODE = 0o640
"""Of what a store creates: its owner writes, its group reads"""
NOTHING_OF_THE_STORE = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
"""What the machine is short of, or a process: memory or descriptors. It says nothing about any file."""
SCRATCH = ".renewed"
"""A name that comes and goes"""
_ACCESS_LIST = "system.posix_acl_access"


class Files:
    """Real files. Every method raises OSError as the system does."""

    def names(self, directory: Path) -> list[str]:
        """The names in a directory; none if it does not exist."""
        try:
            return os.listdir(directory)
        except FileNotFoundError:
            return []

    def reader(self, path: Path) -> BinaryIO:
        """The file, to be read from anywhere in it."""
        return path.open("rb")

    def modified(self, path: Path) -> float:
        """When it was last written to, in seconds since 1970."""
        return path.stat().st_mtime

    def create(self, path: Path) -> int:
        """A new file; returns a descriptor that appends to it."""
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, FILE_MODE)

    def open(self, path: Path) -> int:
        """A descriptor that appends to a file."""
        return os.open(path, os.O_RDWR | os.O_APPEND)

    def take_access(self, descriptor: int, other: int) -> None:
        """Give a file owner, group, mode and access list of another one, so that those who may use that may use
        this."""
        wanted, given = os.fstat(other), os.fstat(descriptor)
        if (given.st_uid, given.st_gid) != (wanted.st_uid, wanted.st_gid):
            os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(wanted.st_mode))
        try:
            access_list = os.getxattr(other, _ACCESS_LIST)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOTSUP):
                raise
        else:
            os.setxattr(descriptor, _ACCESS_LIST, access_list)

    def close(self, descriptor: int) -> None:
        """Let go of it."""
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        """How long the file is, in bytes."""
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(descriptor, size)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def copy(self, source: Path, path: Path, size: int) -> int:
        """A new file that holds the first ``size`` bytes of another one; returns a descriptor that appends to it."""
        descriptor = self.create(path)
        try:
            with source.open("rb") as file:
                while size and (data := file.read(min(size, REWRITE_BYTES))):
                    self.write(descriptor, [data])
                    size -= len(data)
        except OSError:
            self.close(descriptor)
            raise
        return descriptor

    def replace(self, path: Path, by: Path) -> None:
        """The file ``by`` takes the name ``path``, and the one that had it is gone: both at once, also in a crash."""
        by.rename(path)

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        """Write all buffers at the end, in order."""
        pending = [memoryview(buffer) for buffer in buffers]
        while pending:
            written = os.writev(descriptor, pending[:WRITE_BUFFERS])
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]

    def sync(self, descriptor: int) -> None:
        """Return only when what was written since the last sync is on disk.

        Where it fails, Linux takes what was written for clean: a later sync that succeeds says nothing about it.
        """
        os.fdatasync(descriptor)

    def rewrite(self, path: Path, offset: int) -> None:
        """Write what stands in a file from ``offset`` on once more, and its length: the next sync syncs them."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            size = os.fstat(descriptor).st_size
            os.ftruncate(descriptor, size + 1)
            os.ftruncate(descriptor, size)
            while data := os.pread(descriptor, REWRITE_BYTES, offset):
                offset += os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)

    def sync_directory(self, directory: Path) -> None:
        """Make the creation and removal of files in this directory durable."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


REAL_FILES = Files()


def write_again(files: Files, descriptor: int, path: Path, since: int) -> None:
    """Make durable what stands in an open file from ``since`` on, and the names of its directory. Raises OSError.

    A sync that failed has left both clean, so another one alone would write nothing (``sync_failed_then_restart``).
    """
    files.rewrite(path, since)
    crash_point("log.written-again")
    files.sync(descriptor)
    renew_directory(path.parent, files)


def renew_directory(directory: Path, files: Files = REAL_FILES, name: str = SCRATCH) -> None:
    """Make the names that are in a directory durable, also those whose own sync has failed. Raises OSError.

    A directory that has not changed since is clean, so ``name`` is made and removed in it before it is synced. No
    other process or thread may do that at the same time with the same name.
    """
    scratch = directory / name
    if name in files.names(directory):
        files.remove(scratch)
    files.close(files.create(scratch))
    files.remove(scratch)
    files.sync_directory(directory)


def sync_directories_above(directory: Path, files: Files = REAL_FILES) -> None:
    """Make the name of a directory durable, and those of the directories above it. Raises OSError.

    Another process may have made any of them a moment ago, and not have synced it yet. It goes up to the root of the
    file system that the directory is in: what is mounted is there after a crash, or is missed. What may not be read is
    passed over: who made a directory there could read it.
    """
    device = directory.stat().st_dev
    for above in directory.resolve().parents:
        if above.stat().st_dev != device:
            return
        with suppress(PermissionError):
            files.sync_directory(above)


def make_directory(directory: Path) -> None:
    """Make a directory, and those above it that are missing, durably. Raises OSError."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        REAL_FILES.sync_directory(each.parent)


def explain(error: OSError, what: Path) -> StoreError:
    """One sentence for people, of the right kind."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(f"no space is left for {what}; make room and start the node again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        how = "mount it writable" if error.errno == errno.EROFS else "let this user write there"
        return StoreFull(f"{what} cannot be written ({os.strerror(error.errno)}); {how} and start again")
    if error.errno in NOTHING_OF_THE_STORE:
        return StoreBusy(f"{what} could not be opened or read ({error.strerror}); start again")
    return StoreError(f"{what} failed: {error.strerror or error}")
