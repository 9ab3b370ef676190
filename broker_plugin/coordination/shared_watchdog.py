"""SharedWatchdog: what a node and its coordination process know of each other without a call: a few words of memory.

The node writes when its loop has completed a turn, and the process when it has renewed. Neither waits for the other, so
one that hangs is not noticed by an error: it is noticed by what stays as it was. Each word is written by one side, in
one step. The two words of one side are not written together, and need not be: who reads the generation of one moment
and the time of another finds a time that is too early, or a generation that is not asked for.
"""

from __future__ import annotations

import math
import mmap
import os

WORDS = 4
"""Generation and time of the last turn, then those of the last renewal"""
WORD_BYTES = 8
NANOSECONDS = 1_000_000_000
"""Of a second. Times are written as whole nanoseconds; 0: none."""


class SharedWatchdog:
    """Implements ``ha.membership.watchdog.Watchdog``, and is the other side of it too.

    Without ``descriptor`` the memory is made; its ``descriptor`` may be handed to one process after the other. With it,
    it is the memory of a node, in its process; the descriptor is closed. Raises OSError.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        size = WORDS * WORD_BYTES
        self.descriptor = -1
        if descriptor is None:
            self.descriptor = descriptor = os.memfd_create("txha-watchdog")
            os.ftruncate(descriptor, size)
        self._memory = mmap.mmap(descriptor, size)
        if self.descriptor < 0:
            os.close(descriptor)
        self._words = memoryview(self._memory).cast("q")

    # -- the node's side

    def turned(self, generation: int, now: float) -> None:
        """As the port says."""
        self._write(0, generation, now)

    def rest(self) -> None:
        """As the port says."""
        self._words[1] = 0

    def renewed_at(self, generation: int) -> float:
        """As the port says."""
        return self._read(2, generation)

    # -- the coordination process's side

    def turned_at(self, generation: int) -> float:
        """When the loop of this generation's primary has completed its last turn; minus infinity where there is none,
        or the lease is to be kept no more."""
        return self._read(0, generation)

    def renewed(self, generation: int, begun_at: float) -> None:
        """A renewal of this generation's lease, begun at this time, has been made and synced."""
        self._write(2, generation, begun_at)

    def close(self) -> None:
        """Let go of the memory; nothing is read or written after that."""
        self._words.release()
        self._memory.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def _write(self, first: int, generation: int, time: float) -> None:
        if self._words[first] != generation:
            self._words[first + 1] = 0
            self._words[first] = generation
        self._words[first + 1] = int(time * NANOSECONDS)

    def _read(self, first: int, generation: int) -> float:
        if self._words[first] != generation or not (time := self._words[first + 1]):
            return -math.inf
        return time / NANOSECONDS
