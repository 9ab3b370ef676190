"""Versions that a process tells another one through a pipe: when it is time to look at the record again."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

_VERSION = struct.Struct("<q")
_MANY = 512
"""Versions that are read at a time"""


class VersionWriter:
    """The one end. A version for which the pipe has no room is dropped: what is in it makes the reader look."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    def write(self, version: int) -> None:
        """Tell it, without waiting. From any thread."""
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._descriptor, _VERSION.pack(version))


class VersionReader:
    """The other end: ``told`` is called in a thread of its own. ``descriptor``: what a process writes to.

    Processes that write to it may come and go; ``close`` ends the thread when all of them have gone. Raises OSError.
    """

    def __init__(self, told: Callable[[int], None]) -> None:
        self._told = told
        self._reading, self.descriptor = os.pipe()
        threading.Thread(target=self._run, name="record-changes", daemon=True).start()

    def close(self) -> None:
        """No more is told, once no process writes any more."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _run(self) -> None:
        begun = b""
        while piece := os.read(self._reading, _VERSION.size * _MANY):
            begun += piece
            whole = len(begun) - len(begun) % _VERSION.size
            for (version,) in _VERSION.iter_unpack(begun[:whole]):
                self._told(version)
            begun = begun[whole:]
        os.close(self._reading)
