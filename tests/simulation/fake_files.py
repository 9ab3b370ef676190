"""Files in memory that lose in a crash what a real disk may lose, and fail as a real disk may fail.

A crash keeps every byte that was synced. Of what was written since, it keeps any prefix; behind that the file may end,
or go on with zeros where blocks were allocated and never filled. A cut that was not synced may or may not have
happened. Of what happened to the directory since it was synced, any prefix has happened.
"""

from __future__ import annotations

import errno
import io
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from recovery.files import Files

_FRAME = struct.Struct(">16xQQI")
"""Of a frame's header (txobserver.frames): generation, first sequence, number of events"""


class Crashed(BaseException):
    """The process ended in the middle of a file operation."""


class Written(NamedTuple):
    """A frame in a file: the offset of its end, its generation, its first and last sequence."""

    end: int
    generation: int
    first: int
    last: int


@dataclass
class FakeFile:
    """``frames`` are those written, in order; ``uncut`` is what a cut that is not synced took away."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    uncut: tuple[bytes, list[Written]] | None = None
    frames: list[Written] = field(default_factory=list)
    modified: float = 0.0

    def crash(self, chance: random.Random) -> None:
        """Lose what may be lost."""
        if self.uncut is not None and chance.random() < 0.5:
            self.data, self.frames = bytearray(self.uncut[0]), self.uncut[1]
        else:
            kept = chance.randint(self.synced, len(self.data)) if chance.random() < 0.7 else self.synced
            missing = len(self.data) - kept
            del self.data[kept:]
            if missing and chance.random() < 0.3:
                self.data += bytes(chance.randint(1, missing))
            self.frames = [frame for frame in self.frames if frame.end <= kept]
        self.uncut = None
        self.synced = len(self.data)


class FakeFiles(Files):
    """One directory. ``now`` gives virtual seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.entries: dict[str, FakeFile] = {}
        self.full = False
        self.sync_fails = False
        self.read_fails = False
        self.steps_to_crash: int | None = None
        self._now = now
        self._open: dict[int, FakeFile] = {}
        self._unsynced: list[tuple[str, str, FakeFile]] = []
        self._descriptors = 0

    # -- what a test asks

    def crash(self, chance: random.Random) -> None:
        """The machine goes down."""
        kept = chance.randint(0, len(self._unsynced))
        for what, name, file in reversed(self._unsynced[kept:]):
            if what == "create":
                self.entries.pop(name, None)
            else:
                self.entries[name] = file
        self._unsynced.clear()
        self._open.clear()
        self.steps_to_crash = None
        for name in sorted(self.entries):
            self.entries[name].crash(chance)

    def last_durable(self) -> tuple[int, int]:
        """(generation, sequence) of the last event that is synced; zeros without one."""
        for name in sorted(self.entries, reverse=True):
            file = self.entries[name]
            for frame in reversed(file.frames):
                if frame.end <= file.synced:
                    return frame.generation, frame.last
        return 0, 0

    def generation_at(self, sequence: int) -> int | None:
        """The generation of the event at this sequence, if it is synced."""
        for name in sorted(self.entries, reverse=True):
            file = self.entries[name]
            for frame in reversed(file.frames):
                if frame.first <= sequence <= frame.last:
                    return frame.generation if frame.end <= file.synced else None
        return None

    def flip(self, chance: random.Random) -> bool:
        """Damage one bit of what was synced; False if there is nothing."""
        there = [name for name in sorted(self.entries) if self.entries[name].synced]
        if not there:
            return False
        file = self.entries[chance.choice(there)]
        file.data[chance.randrange(file.synced)] ^= 1 << chance.randrange(8)
        return True

    # -- Files

    def names(self, directory: Path) -> list[str]:
        return list(self.entries)

    def reader(self, path: Path) -> BinaryIO:
        if self.read_fails:
            raise OSError(errno.EIO, "Input/output error")
        file = self.entries.get(path.name)
        if file is None:
            raise FileNotFoundError(path.name)
        return io.BytesIO(file.data)

    def modified(self, path: Path) -> float:
        return self.entries[path.name].modified

    def create(self, path: Path) -> int:
        self._step()
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        if path.name in self.entries:
            raise FileExistsError(path.name)
        file = self.entries[path.name] = FakeFile(modified=self._now())
        self._unsynced.append(("create", path.name, file))
        return self._opened(file)

    def open(self, path: Path) -> int:
        return self._opened(self.entries[path.name])

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def size(self, descriptor: int) -> int:
        return len(self._open[descriptor].data)

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        file = self._open[descriptor]
        if self._about_to_crash() or self.full:
            self._put(file, buffers, sum(map(len, buffers)) // 2)
            self._step()
            raise OSError(errno.ENOSPC, "No space left on device")
        self._step()
        self._put(file, buffers, sum(map(len, buffers)))
        file.modified = self._now()

    def sync(self, descriptor: int) -> None:
        self._step()
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        file = self._open[descriptor]
        file.synced = len(file.data)
        file.uncut = None

    def truncate(self, descriptor: int, size: int) -> None:
        self._step()
        file = self._open[descriptor]
        if size < file.synced:
            file.uncut = bytes(file.data[: file.synced]), [each for each in file.frames if each.end <= file.synced]
        del file.data[size:]
        file.synced = min(file.synced, size)
        file.frames = [frame for frame in file.frames if frame.end <= size]

    def remove(self, path: Path) -> None:
        self._step()
        self._unsynced.append(("remove", path.name, self.entries.pop(path.name)))

    def sync_directory(self, directory: Path) -> None:
        self._step()
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        self._unsynced.clear()

    @staticmethod
    def _put(file: FakeFile, buffers: Sequence[bytes], size: int) -> None:
        """The first ``size`` bytes; a frame counts as written if all of it is among them."""
        for buffer in buffers:
            file.data += buffer[:size]
            if len(buffer) <= size and buffer[:4] == b"TXHA":
                generation, first, count = _FRAME.unpack_from(buffer)
                file.frames.append(Written(len(file.data), generation, first, first + count - 1))
            size = max(0, size - len(buffer))

    def _opened(self, file: FakeFile) -> int:
        self._descriptors += 1
        self._open[self._descriptors] = file
        return self._descriptors

    def _about_to_crash(self) -> bool:
        return self.steps_to_crash == 0

    def _step(self) -> None:
        if self.steps_to_crash is not None:
            if self.steps_to_crash == 0:
                raise Crashed
            self.steps_to_crash -= 1
