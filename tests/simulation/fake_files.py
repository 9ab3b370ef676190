"""Files in memory that lose in a crash what a real disk may lose, and fail as a real disk may fail.

As on Linux: a crash keeps every byte that was synced. Of what was written since, it keeps any prefix, or any sectors,
since a disk writes them in the order that it likes; those that are missing read as zeros, and behind the last one that
is kept the file may end, or go on with zeros where blocks were allocated and never filled. A cut that was not synced
may or may not have happened. Of what happened to the directory since it was synced, any prefix has happened: file
systems with a journal carry changes of names out in order.

A sync that fails reports that once, and takes what it was to write for clean: readers see it, a later sync that
succeeds does not write it, and the crash may keep it or not. Only what is written again is synced again. The same holds
for a directory and for a cut: the next change of names makes the whole directory dirty again, as the next change of the
length does with the length.
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

from recovery.store.files import Files
from recovery.store.groups import SECTOR

_FRAME = struct.Struct(">16xQQI")
"""Of a frame's header (txobserver.frames): generation, first sequence, number of events"""

SYNCED, DIRTY, DOUBTFUL = 0, 1, 2
"""What a byte is: on the disk; written since; taken for clean by a sync that failed"""
_ON_SYNC = bytes.maketrans(bytes([DIRTY]), bytes([SYNCED]))
_ON_REWRITE = bytes.maketrans(bytes([DOUBTFUL]), bytes([DIRTY]))
_ON_FAILURE = bytes.maketrans(bytes([DIRTY]), bytes([DOUBTFUL]))


class Crashed(BaseException):
    """The process ended in the middle of a file operation."""


class Written(NamedTuple):
    """A frame in a file: its offset and that of its end, its generation, its first and last sequence."""

    begin: int
    end: int
    generation: int
    first: int
    last: int


@dataclass
class Uncut:
    """What a cut that is not synced took away; ``dirty``: the next sync that succeeds makes the cut durable."""

    data: bytes
    frames: list[Written]
    dirty: bool = True


@dataclass
class FakeFile:
    """``fates`` holds for each byte what it is; ``frames`` are those written, in order."""

    data: bytearray = field(default_factory=bytearray)
    fates: bytearray = field(default_factory=bytearray)
    uncut: Uncut | None = None
    frames: list[Written] = field(default_factory=list)
    modified: float = 0.0
    named: bool = False
    """Whether its name is on the disk"""
    _known: int = 0
    """Frames from the beginning that have been seen on the disk; only a cut or a crash takes them away"""

    @property
    def synced(self) -> int:
        """Bytes from the beginning that are all on the disk."""
        return len(self.data) - len(self.fates.lstrip(bytes([SYNCED])))

    def has_synced(self, frame: Written) -> bool:
        """Whether every byte of it is on the disk, under a name."""
        return self.named and not self.fates[frame.begin : frame.end].strip(bytes([SYNCED]))

    def frames_synced(self) -> int:
        """How many frames from the beginning are on the disk, under a name."""
        frames = self.frames
        while self._known < len(frames) and self.has_synced(frames[self._known]):
            self._known += 1
        return self._known

    def append(self, data: bytes) -> None:
        """Bytes at the end."""
        self.data += data
        self.fates += bytes([DIRTY]) * len(data)
        self._length_changed()

    def copy(self, other: FakeFile, size: int) -> None:
        """The first bytes of another one, at the end of this, which is empty."""
        self.append(bytes(other.data[:size]))
        self.frames = [frame for frame in other.frames if frame.end <= size]

    def rewrite(self, offset: int) -> None:
        """The bytes from ``offset`` on and the length are written as they are: one that is on the disk stays there."""
        self.fates[offset:] = self.fates[offset:].translate(_ON_REWRITE)
        self._length_changed()

    def cut(self, size: int) -> None:
        """Take away what is behind ``size``."""
        if self.uncut is None:
            kept = self.synced
            if size < kept:
                self.uncut = Uncut(bytes(self.data[:kept]), [each for each in self.frames if each.end <= kept])
        del self.data[size:], self.fates[size:]
        self.frames = [frame for frame in self.frames if frame.end <= size]
        self._known = min(self._known, len(self.frames))
        self._length_changed()

    def sync(self, fails: bool) -> None:
        """What is dirty is on the disk, or is taken for clean."""
        self.fates = bytearray(self.fates.translate(_ON_FAILURE if fails else _ON_SYNC))
        if self.uncut is not None and self.uncut.dirty:
            if fails:
                self.uncut.dirty = False
            else:
                self.uncut = None

    def crash(self, chance: random.Random) -> None:
        """Lose what may be lost."""
        if self.uncut is not None and chance.random() < 0.5:
            self.data, self.frames = bytearray(self.uncut.data), self.uncut.frames
        else:
            self._lose(chance)
        self.uncut = None
        self.fates = bytearray(len(self.data))
        self._known = 0

    def _lose(self, chance: random.Random) -> None:
        """Of the bytes that are not certainly there, some are kept; others are zeros."""
        uncertain = [at for at, fate in enumerate(self.fates) if fate != SYNCED] if any(self.fates) else []
        kept = set(self._kept_of(uncertain, chance))
        lost = [at for at in uncertain if at not in kept]
        if not lost:
            return
        for at in kept:
            self.fates[at] = SYNCED
        for at in lost:
            self.data[at] = 0
        self.frames = [each for each in self.frames if each.end <= lost[0]]
        end = len(self.fates.rstrip(bytes([DIRTY, DOUBTFUL])))
        missing = len(self.data) - end
        del self.data[end:]
        if missing and chance.random() < 0.3:
            self.data += bytes(chance.randint(1, missing))

    @staticmethod
    def _kept_of(uncertain: list[int], chance: random.Random) -> list[int]:
        """Those up to some offset, or of some sectors, or none."""
        how = chance.random()
        if how < 0.3:
            return uncertain[: chance.randint(0, len(uncertain))]
        if how < 0.5:
            return []
        sectors = sorted({at // SECTOR for at in uncertain})
        kept = {sector for sector in sectors if chance.random() < 0.5}
        return [at for at in uncertain if at // SECTOR in kept]

    def _length_changed(self) -> None:
        if self.uncut is not None:
            self.uncut.dirty = True


class Growing(io.BytesIO):
    """What stands in a file, and behind it what is being written: each reading may find more of that."""

    def __init__(self, data: bytes, coming: bytes, chance: random.Random) -> None:
        super().__init__(data)
        self._coming, self._chance = coming, chance

    def read(self, size: int | None = -1, /) -> bytes:
        """As ever."""
        if self._coming:
            more = self._chance.choice((0, self._chance.randint(0, len(self._coming)), len(self._coming)))
            at = self.seek(0, io.SEEK_CUR)
            self.seek(0, io.SEEK_END)
            self.write(self._coming[:more])
            self._coming = self._coming[more:]
            self.seek(at)
        return super().read(size)


class FakeFiles(Files):
    """One directory. ``now`` gives virtual seconds.

    ``coming`` gives what a writer has under way at the end of the last file: a reader sees any part of it, as on Linux,
    and no sync has reached it yet. A crash before it is written keeps nothing of it.

    Many methods: a double of Files, whose methods it has.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.entries: dict[str, FakeFile] = {}
        self.full = False
        self.sync_fails = False
        self.read_fails = False
        self.steps_to_crash: int | None = None
        self.coming: Callable[[], bytes] | None = None
        self._readers = random.Random(0)
        self._now = now
        self._open: dict[int, FakeFile] = {}
        self._unsynced: list[Callable[[], object]] = []
        self._directory_clean = True
        self._descriptors = 0

    # -- what a test asks

    def crash(self, chance: random.Random) -> None:
        """The machine goes down."""
        kept = chance.randint(0, len(self._unsynced))
        for undo in reversed(self._unsynced[kept:]):
            undo()
        self._unsynced.clear()
        self._open.clear()
        self.steps_to_crash = None
        for name in sorted(self.entries):
            self.entries[name].named = True
            self.entries[name].crash(chance)

    def last_durable(self) -> tuple[int, int]:
        """(generation, sequence) of the last event that is on the disk with all before it; zeros without one."""
        last = 0, 0
        for file in self._segments():
            synced = file.frames_synced()
            if synced:
                last = file.frames[synced - 1].generation, file.frames[synced - 1].last
            if synced < len(file.frames):
                return last
        return last

    def generation_at(self, sequence: int) -> int | None:
        """The generation of the event at this sequence, if it is synced."""
        for file in reversed(self._segments()):
            for frame in reversed(file.frames):
                if frame.first <= sequence <= frame.last:
                    return frame.generation if file.has_synced(frame) else None
        return None

    def flip(self, chance: random.Random) -> bool:
        """Damage one bit of what was synced; False if there is nothing."""
        there = [file for file in self._segments() if file.synced]
        if not there:
            return False
        file = chance.choice(there)
        file.data[chance.randrange(file.synced)] ^= 1 << chance.randrange(8)
        return True

    def _segments(self) -> list[FakeFile]:
        """All but what is a log's own business, and counts only under another name."""
        return [self.entries[name] for name in sorted(self.entries) if not name.startswith(".")]

    # -- Files

    def names(self, directory: Path) -> list[str]:
        return list(self.entries)

    def reader(self, path: Path) -> BinaryIO:
        if self.read_fails:
            raise OSError(errno.EIO, "Input/output error")
        file = self.entries.get(path.name)
        if file is None:
            raise FileNotFoundError(path.name)
        coming = self.coming() if self.coming is not None and path.name == max(self.entries) else b""
        return Growing(bytes(file.data), coming, self._readers) if coming else io.BytesIO(file.data)

    def modified(self, path: Path) -> float:
        return self.entries[path.name].modified

    def create(self, path: Path) -> int:
        self._step()
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        if path.name in self.entries:
            raise FileExistsError(path.name)
        file = self.entries[path.name] = FakeFile(modified=self._now())
        self._changed(lambda: self.entries.pop(path.name, None))
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
            file.modified = self._now()
            self._step()
            raise OSError(errno.ENOSPC, "No space left on device")
        self._step()
        self._put(file, buffers, sum(map(len, buffers)))
        file.modified = self._now()

    def rewrite(self, path: Path, offset: int) -> None:
        self._step()
        self.entries[path.name].rewrite(offset)
        self.entries[path.name].modified = self._now()

    def sync(self, descriptor: int) -> None:
        self._step()
        self._open[descriptor].sync(self.sync_fails)
        self._fail_to_sync()

    def truncate(self, descriptor: int, size: int) -> None:
        self._step()
        self._open[descriptor].cut(size)
        self._open[descriptor].modified = self._now()

    def remove(self, path: Path) -> None:
        self._step()
        file = self.entries.pop(path.name)
        self._changed(lambda: self.entries.update({path.name: file}))

    def copy(self, source: Path, path: Path, size: int) -> int:
        descriptor = self.create(path)
        self._step()
        self._open[descriptor].copy(self.entries[source.name], size)
        return descriptor

    def replace(self, path: Path, by: Path) -> None:
        self._step()
        before, file = self.entries[path.name], self.entries.pop(by.name)
        file.named = before.named  # whichever of the two a crash leaves, it is there
        self.entries[path.name] = file
        self._changed(lambda: self.entries.update({path.name: before, by.name: file}))

    def sync_directory(self, directory: Path) -> None:
        self._step()
        if not self.sync_fails and not self._directory_clean:
            self._unsynced.clear()
            for file in self.entries.values():
                file.named = True
        self._directory_clean = True
        self._fail_to_sync()

    def _fail_to_sync(self) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")

    def _changed(self, undo: Callable[[], object]) -> None:
        self._unsynced.append(undo)
        self._directory_clean = False

    @staticmethod
    def _put(file: FakeFile, buffers: Sequence[bytes], size: int) -> None:
        """The first ``size`` bytes; a frame counts as written if all of it is among them."""
        for buffer in buffers:
            begin = len(file.data)
            file.append(buffer[:size])
            if len(buffer) <= size and buffer[:4] == b"TXHA":
                generation, first, count = _FRAME.unpack_from(buffer)
                file.frames.append(Written(begin, len(file.data), generation, first, first + count - 1))
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
