"""Keeping the archive in shape: small files become large ones, old days go.

Each change is one manifest, so readers see all of it or nothing. A file that is no longer named stays for a while:
a reader that began before may still read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

import msgspec

from recovery.pipeline.archive.files import rows_of_files, write_rows
from recovery.pipeline.archive.lake import FileEntry, Lake, Manifest
from recovery.store.crash_points import crash_point

FULL_ROWS = 500_000
"""A file with so many rows is left as it is."""


def upkeep(lake: Lake, keep_days: int | None, now: datetime, grace_seconds: float) -> Manifest:
    """All of it: compact, give up days beyond ``keep_days``, remove what has not been named for
    longer than the grace. Returns the manifest then."""
    now_ms = int(now.timestamp() * 1000)
    compact(lake, now_ms)
    if keep_days is not None:
        retain(lake, keep_days, now.astimezone(UTC).date(), now_ms)
    return remove_unnamed(lake, now_ms, grace_seconds)


def compact(lake: Lake, now_ms: int, full_rows: int = FULL_ROWS) -> Manifest:
    """Make few files of many small ones of the same node and day. Returns the manifest then."""
    manifest = lake.current()
    for group in small_files(manifest, full_rows):
        merged = write_rows(lake.directory, rows_of_files(lake.directory, group))
        crash_point("archive.compacted")
        manifest = lake.commit(_without(manifest, group, now_ms, merged))
    return manifest


def small_files(manifest: Manifest, full_rows: int = FULL_ROWS) -> Iterator[list[FileEntry]]:
    """Groups of two and more neighbours that are to become one file each."""
    order = sorted(manifest.files, key=lambda each: (each.node, each.date, each.first))
    for _, files in groupby(order, key=lambda each: (each.node, each.date)):
        group: list[FileEntry] = []
        for entry in files:
            if entry.rows < full_rows:
                group.append(entry)
            if group and (entry.rows >= full_rows or sum(each.rows for each in group) >= full_rows):
                if len(group) > 1:
                    yield group
                group = []
        if len(group) > 1:
            yield group


def retain(lake: Lake, days: int, today: date, now_ms: int) -> Manifest:
    """Give up all days that are more than ``days`` before today (UTC). Returns the manifest then."""
    manifest = lake.current()
    oldest = (today - timedelta(days=days)).isoformat()
    old = [entry for entry in manifest.files if entry.date < oldest]
    if not old:
        return manifest
    dropped = dict(manifest.dropped)
    for entry in old:
        dropped[entry.node] = max(dropped.get(entry.node, 0), entry.last)
    return lake.commit(msgspec.structs.replace(_without(manifest, old, now_ms, []), dropped=dropped))


def remove_unnamed(lake: Lake, now_ms: int, grace_seconds: float) -> Manifest:
    """Remove files that have not been named for longer than the grace. Returns the manifest then."""
    manifest = lake.current()
    gone = [path for path, since in manifest.removed.items() if now_ms - since >= grace_seconds * 1000]
    if not gone:
        return manifest
    lake.remove(gone)
    crash_point("archive.files-removed")
    left = {path: since for path, since in manifest.removed.items() if path not in gone}
    return lake.commit(msgspec.structs.replace(manifest, removed=left))


def _without(manifest: Manifest, old: list[FileEntry], now_ms: int, new: list[FileEntry]) -> Manifest:
    paths = {entry.path for entry in old}
    return msgspec.structs.replace(
        manifest,
        files=(*(entry for entry in manifest.files if entry.path not in paths), *new),
        removed={**manifest.removed, **dict.fromkeys(paths, now_ms)},
    )
