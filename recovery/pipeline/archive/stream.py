"""The stream's events out of the archive, in order from the first, whichever nodes' rows hold them.

What is archived has passed the commit point, so every node that has an event has the same one. Of each node the archive
has what was kept when its job ran: one may begin late, another may end early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from recovery.pipeline.archive.lake import FileEntry, Lake
from recovery.pipeline.archive.reading import archive_rows
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.rows.events import events_of
from recovery.pipeline.source.offsets import Cluster
from txobserver.events import Event
from txobserver.ids import Position
from txobserver.store import StoreDamaged


def cluster_of_archive(archive: Path) -> Cluster:
    """Which cluster's events it keeps. Raises StoreDamaged if it keeps none, or cannot be read."""
    try:
        cluster = Lake(archive).current().whose
    except PipelineError as error:
        raise StoreDamaged(str(error)) from None
    if not cluster.name:
        raise StoreDamaged(f"{archive} is no archive: it has no manifest that names a cluster")
    return cluster


def archived_events(archive: Path, node: str | None = None) -> Iterator[tuple[Position, Event]]:
    """Every event from the first on, as far as there is no gap; only those of ``node``, if it is given.

    Raises StoreDamaged where a file is missing or cannot be read.
    """
    first = 1
    try:
        files = [each for each in Lake(archive).current().files if node is None or each.node == node]
        while (source := furthest(files, first)) is not None:
            name, last = source
            for recorded in events_of(archive_rows(archive, name, first, last)):
                first = recorded.position.sequence + 1
                yield recorded.position, recorded.event
            if first <= last:
                raise PipelineError(f"{name}'s events {first} to {last} are not in the files that should hold them")
    except (PipelineError, OSError, pa.ArrowException, ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"the archive {archive} cannot be read behind event {first - 1}: {error}") from None


def furthest(files: Iterable[FileEntry], first: int) -> tuple[str, int] | None:
    """The node whose files go on without a gap from ``first`` for longest, and up to where; None if nobody's do."""
    ends: dict[str, int] = {}
    for each in sorted(files, key=lambda each: each.first):
        end = ends.get(each.node, first - 1)
        if each.first <= end + 1 and each.last > end:
            ends[each.node] = each.last
    return max(((node, end) for node, end in ends.items()), key=lambda found: (found[1], found[0]), default=None)
