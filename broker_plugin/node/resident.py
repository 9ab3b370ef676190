"""Memory that a node needs no more, given back to the system now and then: freed memory, and pages of the queue state.

glibc gives freed memory back from the end of its heap only. After a large transaction the heap has holes, and the
process stays as large as it ever was. ``malloc_trim`` gives the pages in the holes back. While it works, the thread of
the event loop waits for it when it wants memory. That was measured to take 0.12 to 0.2 ms of processor time for each
MiB that is given back, and 0.1 to 15 ms where there is nothing to give.

The queue state is a file that LMDB maps. Pages that were looked at once count for the process until the system wants
them. They are let go of, which forgets nothing: the mapping is shared, its pages stay in the system's cache, and what
is wanted again is there again without a read.

Both are done in a thread of its own, at most every ``EVERY`` seconds, and only when the process is larger than it has
been.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

EVERY: Final = 15.0
"""Seconds between two looks at the size of the process."""
GROWTH: Final = 32 << 20
"""Bytes that the process must be larger than it ever was after a trim, to be trimmed."""
FRUITLESS: Final = 4 << 20
"""Bytes: after a trim that gave back less, the next look does nothing."""


MADV_DONTNEED: Final = 4
"""Of Linux: the process does without these pages."""
_MAPPED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ..([^ ])([^ ]) [0-9a-f]+ [0-9a-f:]+ ([0-9]+) +(.*)")


def resident_bytes() -> int:
    """Of this process in memory; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def shared_mappings(file: Path) -> list[tuple[int, int]]:
    """Where this process has mapped the file so that others see what it writes there: addresses and lengths in bytes.

    None where the system does not say.
    """
    found: list[tuple[int, int]] = []
    with suppress(OSError):
        inode, name = file.stat().st_ino, str(file.resolve())
        for line in Path("/proc/self/maps").read_text().splitlines():
            known = _MAPPED.fullmatch(line)
            if known is not None and known[4] == "s" and int(known[5]) == inode and known[6] == name:
                start = int(known[1], 16)
                found.append((start, int(known[2], 16) - start))
    return found


def let_go(file: Path) -> None:
    """Do without the pages of the file that are mapped, until they are wanted again. It must stay mapped meanwhile."""
    with suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        advise.argtypes, advise.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
        for address, length in shared_mappings(file):
            advise(address, length, MADV_DONTNEED)


def trimmer() -> Callable[[], object] | None:
    """What gives freed memory back; None where the C library has nothing for that."""
    with suppress(OSError, AttributeError):
        trim = ctypes.CDLL(None).malloc_trim
        trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
        return lambda: trim(0)
    return None


class ResidentTrim:
    """``look`` is one step; ``start`` takes one every ``EVERY`` seconds in a thread of its own.

    ``mapped``: a file whose pages are let go of as well, of which a part or nothing may be mapped.
    """

    def __init__(
        self,
        size: Callable[[], int] = resident_bytes,
        trim: Callable[[], object] | None = None,
        every: float = EVERY,
        mapped: Path | None = None,
    ) -> None:
        self.least = 0
        """The smallest size, in bytes, after a trim; 0 before the first look"""
        self._size = size
        self._trim = trim if trim is not None else trimmer()
        self._every = every
        self._mapped = mapped
        self._resting = False
        self._looking = threading.Lock()
        self._stopping = threading.Event()

    def start(self) -> None:
        """Begin to look, where there is something to be done. What the process takes now is what it was small with."""
        size = self._size()
        if self._trim is not None and size:
            self.least = self.least or size
            threading.Thread(target=self._run, name="heap trim", daemon=True).start()

    def stop(self) -> None:
        """Look no more; a look that is on its way ends first, so that what is mapped may be unmapped."""
        self._stopping.set()
        with self._looking:
            pass

    def look(self) -> bool:
        """Give back what is not needed if the process has grown; whether that was done."""
        with self._looking:
            return not self._stopping.is_set() and self._look()

    def _look(self) -> bool:
        size = self._size()
        if not self.least:
            self.least = size
        if self._trim is None or size < self.least + GROWTH or self._resting:
            self._resting = False
            return False
        self._trim()
        if self._mapped is not None:
            let_go(self._mapped)
        left = self._size()
        self._resting = size - left < FRUITLESS
        self.least = max(1, min(self.least, left))
        return True

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            self.look()
