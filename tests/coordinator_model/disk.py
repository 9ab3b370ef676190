"""The disk on which decision logs are: real files, whose syncs fail at times, and what a power cut leaves of them."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from recovery.store.files import Files

Ranges = list[tuple[int, int]]

LOG_NAME = "decisions.log"


class Disk:
    """What is not on it yet, by file. A sync that fails takes what it was to write for clean, as Linux does.

    ``owners``: of files, by the user who made them, or who was given them.
    """

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory = directory
        self.owners: dict[int, str] = {}
        self._chance = chance
        self._open: dict[int, int] = {}
        self._untold: set[int] = set()
        self._dirty: dict[int, Ranges] = {}
        self._lost: dict[int, Ranges] = {}

    def opened(self, descriptor: int) -> None:
        """A process has it now."""
        self._open[descriptor] = os.fstat(descriptor).st_ino

    def closed(self, descriptor: int) -> None:
        """No process has it any more."""
        self._open.pop(descriptor, None)
        self._untold.discard(descriptor)

    def written(self, file: int, begin: int, end: int) -> None:
        """In memory."""
        self._dirty.setdefault(file, []).append((begin, end))

    def written_again(self, file: int, begin: int) -> None:
        """What was lost behind ``begin`` comes to the disk with the next sync; the rest of it is there already."""
        lost = self._lost.pop(file, [])
        self._lost[file] = [each for each in lost if each[0] < begin]
        self._dirty.setdefault(file, []).extend(each for each in lost if each[0] >= begin)

    def synced(self, descriptor: int, fails: bool) -> None:
        """Raises OSError to a process that had the file open when a sync failed, once."""
        file = self._open[descriptor]
        dirty = self._dirty.pop(file, [])
        if fails:
            self._lost.setdefault(file, []).extend(dirty)
            self._untold |= {each for each, which in self._open.items() if which == file} - {descriptor}
        if fails or descriptor in self._untold:
            self._untold.discard(descriptor)
            raise OSError(errno.EIO, "Input/output error")

    def power_cut(self) -> None:
        """What is not on the disk is zeros, or, of what no sync has tried, perhaps there."""
        files = {path.stat().st_ino: path for path in self.directory.rglob("*") if path.is_file()}
        for ranges, sure in ((self._dirty, False), (self._lost, True)):
            for file, each in ranges.items():
                if file in files and (sure or self._chance.random() < 0.7):
                    _zero(files[file], each)
        self._dirty.clear()
        self._lost.clear()


def _zero(path: Path, ranges: Ranges) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        for begin, end in ranges:
            file.seek(min(begin, size))
            file.write(bytes(max(0, min(end, size) - begin)))


class UserFiles(Files):
    """Files as one user has them. ``step``: told before and behind each change; what it raises comes instead of it."""

    def __init__(self, disk: Disk, user: str, step: Callable[[str], None], torn: Callable[[int], int]) -> None:
        self.disk = disk
        self._user = user
        self._step = step
        self._torn = torn

    def create(self, path: Path) -> int:
        self._step("file")
        descriptor = super().create(path)
        self.disk.opened(descriptor)
        self.disk.owners[os.fstat(descriptor).st_ino] = self._user
        return descriptor

    def open(self, path: Path) -> int:
        owner = self.disk.owners.get(path.stat().st_ino, self._user)
        if self._user not in ("root", owner):
            raise PermissionError(errno.EACCES, "Permission denied")
        descriptor = super().open(path)
        self.disk.opened(descriptor)
        return descriptor

    def adopt(self, descriptor: int) -> int:
        """As a child of fork has it."""
        copy = os.dup(descriptor)
        self.disk.opened(copy)
        return copy

    def take_access(self, descriptor: int, other: int) -> None:
        new, old = os.fstat(descriptor).st_ino, os.fstat(other).st_ino
        if self._user not in ("root", self.disk.owners[old]):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.disk.owners[new] = self.disk.owners[old]

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self.disk.closed(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        data = b"".join(buffers)
        self._step("file")
        begin = self.size(descriptor)
        cut = self._torn(len(data))
        super().write(descriptor, [data[:cut]])
        self.disk.written(os.fstat(descriptor).st_ino, begin, begin + cut)
        self._step("file")

    def rewrite(self, path: Path, offset: int) -> None:
        super().rewrite(path, offset)
        self.disk.written_again(path.stat().st_ino, offset)

    def sync(self, descriptor: int) -> None:
        fails = False
        try:
            self._step("sync")
        except OSError:
            fails = True
        self.disk.synced(descriptor, fails)
        self._step("file")

    def sync_directory(self, directory: Path) -> None:
        self._step("file")
