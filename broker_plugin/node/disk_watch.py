"""How much is free on the disk of a node's store, looked at in a thread of its own: a disk may hang for long.

Below ``least`` bytes the disk is short, until a quarter more than that is free: a store that finds no room ends its
node, so publishers are blocked before (``broker_plugin.amqp.alarms``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

EVERY: Final = 1.0
"""Seconds between two looks."""
AGAIN: Final = 1.25
"""Times ``least`` must be free until the disk is not short any more."""

Post = Callable[[Callable[[], None]], None]
"""Calls in the event loop, from any thread."""


def free_bytes(directory: Path) -> int:
    """What this process may still write there. Raises OSError."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


class DiskRoom(NamedTuple):
    """What is known of a disk. ``free``: -1 while nothing is; ``problem``: why it could not be read the last time."""

    free: int = -1
    short: bool = False
    problem: str = ""


def next_room(before: DiskRoom, least: int, free: int) -> DiskRoom:
    """What is known when so many bytes are free. ``least``: 0 for a disk that is never called short."""
    return DiskRoom(free, free < (AGAIN * least if before.short else least))


class DiskWatch:
    """``room`` is what the last look has found; ``changed`` is called in the event loop after each look."""

    def __init__(
        self,
        directory: Path,
        least: int,
        post: Post,
        changed: Callable[[DiskRoom, DiskRoom], object],
        look: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.room = DiskRoom()
        self._directory = directory
        self._least = least
        self._post = post
        self._changed = changed
        self._look = look
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more. A look that hangs is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                free = self._look(self._directory)
            except OSError as error:
                self._post(lambda reason=str(error.strerror or error): self._unread(reason))  # type: ignore[misc]
            else:
                self._post(lambda found=free: self._found(found))  # type: ignore[misc]
            self._stopping.wait(EVERY)

    def _found(self, free: int) -> None:
        self._tell(next_room(self.room, self._least, free))

    def _unread(self, reason: str) -> None:
        self._tell(self.room._replace(problem=reason))

    def _tell(self, room: DiskRoom) -> None:
        before, self.room = self.room, room
        if not self._stopping.is_set():
            self._changed(before, room)
