"""Setting a store aside: its parts are renamed into a directory beside it, and nothing is deleted.

The queue state goes first and the identity last. A directory that has an identity and no state is a damaged store, with
which no node starts; so a run that is killed in between leaves nothing that could be taken for a store, and the next
attempt goes on in the same directory. Were the log first, a member of the ready set could come back without it. What a
``txha rebuild`` that was killed has left goes before all of it: no run goes on with that, and it may be a part of the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from recovery.store.crash_points import crash_point
from recovery.store.files import REAL_FILES
from recovery.store.identity import FILE

PARTS = ("state", "log", FILE)
"""What a store consists of, in the order in which it is set aside"""
REBUILDING = "rebuilding"
"""Where ``txha rebuild`` makes a store"""


def set_aside(directory: Path, stem: str, name: Callable[[], str], point: str) -> Path | None:
    """Move the store in ``directory``, which is locked, into a new directory there; None if there is no store.

    Directories for this begin with ``stem``; ``name`` gives a new one. ``point`` is passed when a part was moved, and
    is durable. Raises OSError.
    """
    there = [part for part in (REBUILDING, *PARTS) if (directory / part).exists()]
    if not there or there == [REBUILDING]:
        return None
    aside = _begun(directory, stem, there) or directory / name()
    aside.mkdir(exist_ok=True)
    REAL_FILES.sync_directory(directory)
    for part in there:
        (directory / part).rename(aside / part)
        REAL_FILES.sync_directory(aside)
        REAL_FILES.sync_directory(directory)
        crash_point(point)
    return aside


def _begun(directory: Path, stem: str, there: Sequence[str]) -> Path | None:
    """The directory into which a run that was killed had begun to move this store."""
    for aside in sorted(directory.glob(f"{stem}-*"), key=lambda path: path.stat().st_mtime, reverse=True):
        held = {part for part in (REBUILDING, *PARTS) if (aside / part).exists()}
        if FILE not in held and held.isdisjoint(there):
            return aside
    return None
