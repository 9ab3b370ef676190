"""Which queues a log declares, also those that have been deleted since. Each segment is searched once by a process."""

from __future__ import annotations

import mmap
import os
from functools import lru_cache
from pathlib import Path

from recovery.segment import scan
from txobserver.configuration import DECLARE_QUEUE
from txobserver.events import Configure
from txobserver.frames import Frame

_STEP = DECLARE_QUEUE.encode()
_REMEMBERED = 4096
"""Segments; of most there is nothing to remember but that they declare no queue."""


def declared_by(frame: Frame) -> dict[int, str]:
    """Number and name of each queue that is declared in a frame."""
    if _STEP not in frame.data:
        return {}
    steps = [event for event in frame.events() if isinstance(event, Configure)]
    return {step.config_id: step.name for step in steps if step.operation == DECLARE_QUEUE}


def declared_in(segment: Path) -> dict[int, str]:
    """Number and name of each queue that is declared in a segment. Raises FileNotFoundError, StoreError."""
    status = os.stat(segment)
    return _declared_in(segment, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(_REMEMBERED)
def _declared_in(segment: Path, version: tuple[int, ...]) -> dict[int, str]:
    with segment.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(_STEP) < 0:
                return {}
    found: dict[int, str] = {}
    for _, frame in scan(segment, whole=False):
        found.update(declared_by(frame))
    return found
