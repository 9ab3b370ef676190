"""Real files, and what of them would be on the disk if the power failed now, as on Linux."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from recovery.store.files import Files


class LinuxFiles(Files):
    """What a sync that fails was to write is taken for clean, and is lost at the power cut unless it is written again.

    ``failing``: whether syncs fail now. Files are known by their paths when they were opened. A process that had the
    file open when a sync failed is told by its own next sync; one that opens it later is not.
    """

    def __init__(self) -> None:
        self.failing = False
        self._paths: dict[int, Path] = {}
        self._untold: set[int] = set()
        self._dirty: dict[Path, list[tuple[int, int]]] = {}
        self._lost: dict[Path, list[tuple[int, int]]] = {}

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self._paths[descriptor] = path
        return descriptor

    def open(self, path: Path) -> int:
        descriptor = super().open(path)
        self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        del self._paths[descriptor]
        self._untold.discard(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        before = self.size(descriptor)
        super().write(descriptor, buffers)
        self._dirty.setdefault(self._paths[descriptor], []).append((before, self.size(descriptor)))

    def rewrite(self, path: Path, offset: int) -> None:
        super().rewrite(path, offset)
        end = path.stat().st_size
        self._dirty.setdefault(path, []).append((offset, end))
        self._lost[path] = [(begin, min(stop, offset)) for begin, stop in self._lost.get(path, []) if begin < offset]

    def sync(self, descriptor: int) -> None:
        path = self._paths[descriptor]
        dirty = self._dirty.pop(path, [])
        if self.failing:
            self._lost.setdefault(path, []).extend(dirty)
            self._untold |= {each for each, name in self._paths.items() if name == path} - {descriptor}
            raise OSError(errno.EIO, "Input/output error")
        if descriptor in self._untold:
            self._untold.remove(descriptor)
            raise OSError(errno.EIO, "Input/output error")
        super().sync(descriptor)

    def power_cut(self) -> None:
        """What was written and is neither synced nor certainly on the disk is zeros."""
        for ranges in (self._dirty, self._lost):
            for path, lost in ranges.items():
                with path.open("r+b") as file:
                    for begin, end in lost:
                        file.seek(begin)
                        file.write(bytes(end - begin))
        self._dirty.clear()
        self._lost.clear()
