"""Which queues a log declares, also those that have been deleted since. Each segment is searched once by a process."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from recovery.store.files import REAL_FILES
from recovery.store.segment import scan
from txobserver.batch import queues_declared_by
from txobserver.configuration import DECLARE_QUEUE
from txobserver.events import Configure
from txobserver.frames import Frame
from txobserver.ports.store import StoreDamaged

_STEP = DECLARE_QUEUE.encode()
_REMEMBERED = 4096
"""Segments; of most there is nothing to remember but that they declare no queue."""
PIECE = 1 << 20
"""Bytes of a segment that are searched at a time"""


def declared_by(frame: Frame) -> dict[int, str]:
    """Number and name of each queue that is declared in a frame."""
    if _STEP not in frame.data:
        return {}
    steps = [event for event in frame.events() if isinstance(event, Configure)]
    return {number: name for step in steps for number, name in queues_declared_by(step).items()}


def declared_in(segment: Path) -> dict[int, str]:
    """Number and name of each queue that is declared in a segment. Raises FileNotFoundError, StoreError."""
    version = _version(segment)
    try:
        return _declared_in(segment, version)
    except StoreDamaged:
        if version == _version(segment):
            raise
    return _declared_in(segment, _version(segment))  # its node has cut it meanwhile


def _version(segment: Path) -> tuple[int, ...]:
    status = os.stat(segment)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(_REMEMBERED)
def _declared_in(segment: Path, version: tuple[int, ...]) -> dict[int, str]:
    if not _holds(segment, _STEP):
        return {}
    found: dict[int, str] = {}
    for _, frame in scan(segment, whole=False):
        found.update(declared_by(frame))
    return found


def _holds(segment: Path, word: bytes) -> bool:
    """Whether these bytes stand in a file. It is read, not mapped: a map ends its process when the file is cut."""
    before = b""
    with REAL_FILES.reader(segment) as file:
        while piece := file.read(PIECE):
            if word in before + piece:
                return True
            before = piece[-len(word) :]
    return False
