"""Named points between two durable steps at which a test can end the process as SIGKILL would.

With the environment variable TXHA_CRASH_POINT set to ``name`` or ``name:n``, the process kills itself when it passes
that point for the n-th time (the first, if n is not given). With ``@file`` behind it, passings count from the moment
when that file exists: so a node can be made what it shall be before it dies. The last thing that it says on standard
error is the name of the point. Without the variable a crash point costs one comparison.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "TXHA_CRASH_POINT"
CRASH_POINTS: dict[str, str] = {
    "store.identity-synced": "the store's identity is on disk under a name that no reader looks for",
    "store.identity-written": "a new store is whole: its identity is on disk, which comes last",
    "segment.created": "a new segment file exists without its header",
    "segment.header-synced": "a new segment has its header, and no frame",
    "log.written-again": "what a start found in the log is written again and not yet synced",
    "log.before-write": "a group is about to be written to the log",
    "log.written": "a group is written and not yet synced",
    "log.synced": "a group is synced, and no node has been told",
    "truncate.segments-removed": "whole segments behind the cut are gone, the last one is not yet cut",
    "truncate.cut": "the last segment is cut and not yet synced",
    "truncate.group-ended": "that a group ends where it was cut is written and not yet synced",
    "reset.segments-removed": "all segments are gone after a snapshot",
    "checkpoint.before-write": "a checkpoint is about to be written",
    "checkpoint.before-commit": "a checkpoint is written and not yet committed",
    "checkpoint.committed": "a checkpoint is on disk, and no component has been told",
    "reclaim.segment-removed": "one segment past its retention is gone, others may follow",
    "init.store-made": "`txha init` has made the founder's store, and there is no coordination record yet",
    "init.record-written": "it has written the first coordination record, and told no node",
    "cas.before": "a change of the coordination record is about to be made",
    "cas.committed": "a change of the coordination record is on disk, and no node has been told",
    "recover.plan-written": "`txha recover --apply` has written its plan, and done nothing yet",
    "recover.part-set-aside": "it has renamed a part of a damaged store, others may follow",
    "recover.action-done": "it has carried out one action of its plan, others may follow",
    "discard.left-ready-set": "`txha discard` has taken the member out of the ready set, and its store is untouched",
    "discard.part-set-aside": "it has renamed a part of a store, others may follow",
    "settle.branch-settled": "`txha recover --settle` has settled one branch, others may follow",
    "settle.noted": "it has noted in its plan how branches have ended",
    "settle.recovered": "the recovery runs are over, and what became of the branches is not noted yet",
    "rebuild.part-moved": "`txha rebuild` has moved a part of the new store into its place, others may follow",
    "archive.files-written": "files of the archive are on disk, and no manifest names them",
    "archive.manifest-written": "a manifest of the archive is on disk under a name that no reader looks for",
    "archive.committed": "a manifest of the archive counts, and Spark has not been told",
    "archive.compacted": "a large file of the archive is on disk, and its small ones are still what counts",
    "archive.files-removed": "files that no manifest names are gone, and the manifest still lists them as removed",
}


def _armed() -> tuple[str, int, str]:
    point, _, file = os.environ.get(VARIABLE, "").partition("@")
    name, _, count = point.partition(":")
    if name and name not in CRASH_POINTS:
        raise ValueError(f"TXHA_CRASH_POINT names no crash point: {name}")
    return name, int(count or 1), file


_name, _left, _file = _armed()


def crash_point(name: str) -> None:
    """End this process here if the environment asks for it."""
    global _left
    if name == _name and (not _file or os.path.exists(_file)):
        _left -= 1
        if _left == 0:
            os.write(2, f"crash point {name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
