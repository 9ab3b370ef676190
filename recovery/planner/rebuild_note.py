"""What ``txha rebuild`` notes of a store before it makes it, and whether a run that was killed can be gone on with.

The parts of a new store are made below ``rebuilding/`` and then moved. A run that is killed in between leaves some of
them in one place and some in the other, and before another one goes on, those that have been moved can be set aside, or
give way to another store. So moving goes on only if the noted store is there, all of it, and nothing else
(``discarded_and_started_between_two_runs``).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from recovery.reader.log_reader import LogReader
from recovery.reader.node_log import NodeLog
from recovery.store.aside import REBUILDING
from recovery.store.files import FILE_MODE, REAL_FILES, make_directory
from recovery.store.identity import FILE, read_identity
from recovery.store.lmdb_state import read_meta
from txobserver.ids import Position
from txobserver.ports.store import StoreError

NOTE = "of"
PARTS = ("log", "state", FILE)
"""In the order in which they are moved"""


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """A store that is being made: whose it becomes, and what it is made of.

    ``log`` and ``archive`` name what is read, absolutely; empty: there is none. ``outcomes_kept`` and
    ``outcome_seconds`` are the cluster's.
    """

    cluster: str
    cluster_id: str
    node: str
    incarnation: str
    log: str
    archive: str
    outcomes_kept: int
    outcome_seconds: float

    def is_like(self, other: Making) -> bool:
        """Whether both are asked for with the same arguments: each run gives another incarnation."""
        return msgspec.structs.replace(self, incarnation=other.incarnation) == other

    def __str__(self) -> str:
        sources = [f"the {kind} {name}" for kind, name in (("archive", self.archive), ("log of", self.log)) if name]
        whose = f"node {self.node} of cluster {self.cluster}" + (f" ({self.cluster_id})" if self.cluster_id else "")
        return f"{whose} from {' and '.join(sources) or 'events'}"


def note(into: Path, making: Making) -> None:
    """Write down durably what is going to be made in ``into``. Raises OSError."""
    work = into / REBUILDING
    make_directory(work)
    descriptor = os.open(work / NOTE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        REAL_FILES.write(descriptor, [msgspec.json.encode(making)])
        REAL_FILES.sync(descriptor)
    finally:
        os.close(descriptor)
    REAL_FILES.sync_directory(work)


def is_half_moved(into: Path, making: Making) -> bool:
    """Whether a run that made the same was killed when it had begun to move it, so that moving is gone on with.

    Where nothing has been moved, it is made anew, of what its sources hold by now. Raises StoreError if what is there
    is, or may be, anything else.
    """
    there = [part for part in PARTS if (into / part).exists()]
    if not there:
        return False
    left = _left(into, there)
    if left is None:
        raise StoreError(
            f"{into} holds a store already ({', '.join(there)}); give it up with `txha discard`, or choose another "
            "directory"
        )
    if not left.is_like(making):
        raise StoreError(
            f"{into} holds what a run that was killed has made with other arguments (the store of {left}): repeat "
            "those, give it up with `txha discard`, or choose another directory"
        )
    return True


def _left(into: Path, there: list[str]) -> Making | None:
    """What the run that was killed was making, if it is there as a whole, and as that run has made it."""
    work = into / REBUILDING
    where = {part: into if part in there else work for part in PARTS}
    twice = any((work / part).exists() for part in there)
    if twice or tuple(there) != PARTS[: len(there)] or not all((where[part] / part).exists() for part in PARTS):
        return None
    try:
        left = msgspec.json.decode((work / NOTE).read_bytes(), type=Making)
        identity = read_identity(where[FILE])
        members = {(each.node, each.incarnation) for each in LogReader(where["log"]).segments()}
        if identity is None or members | {tuple(identity.member)} != {(left.node, left.incarnation)}:
            return None
        # With an identity in its place, a node can have gone on with the store.
        return left if where[FILE] == work or _end(into) == identity.rebuilt else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, StoreError):
        return None


def _end(directory: Path) -> Position:
    """Where the stream that a store holds ends. Raises StoreError."""
    applied, last = read_meta(directory).applied, NodeLog(directory).tail()
    return applied if last is None else max(applied, Position(last.generation, last.last))
