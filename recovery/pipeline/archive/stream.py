"""The stream's events out of the archive, in order from the first, whichever nodes' rows hold them.

What is archived has passed the commit point, so every node that has an event has the same one, unless the cluster has
given it up (accepted data loss): such events are left out where the archive knows of it (``history``), and elsewhere
two that cannot follow each other are an error. Of each node the archive has what was kept when its job ran: one may
begin late, another may end early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from recovery.pipeline.archive.history import breaks, completed, superseded
from recovery.pipeline.archive.lake import FileEntry, Gap, Lake
from recovery.pipeline.archive.reading import archive_rows
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.rows.events import Recorded, events_of
from recovery.pipeline.source.offsets import Cluster
from txobserver.events import Event, GenerationStart
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged


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

    Raises StoreDamaged where a file is missing or cannot be read, or events are of different histories.
    """
    first, before = 1, Position(0, 0)
    try:
        manifest = Lake(archive).current()
        files = [completed(archive, each) for each in manifest.files if node is None or each.node == node]
        while (source := furthest(files, first, manifest.gaps)) is not None:
            name, last = source
            for recorded in events_of(archive_rows(archive, name, max(first - 1, 1), last)):
                _check_follows(before, recorded)
                if recorded.position != before:
                    first, before = recorded.position.sequence + 1, recorded.position
                    yield recorded.position, recorded.event
            if first <= last:
                raise PipelineError(f"{name}'s events {first} to {last} are not in the files that should hold them")
    except (PipelineError, OSError, pa.ArrowException, ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"the archive {archive} cannot be read behind event {first - 1}: {error}") from None


def _check_follows(before: Position, next_one: Recorded) -> None:
    """Whether both are of one history; the second may be the first one again, of another node. Raises PipelineError."""
    at = next_one.position
    if at.sequence > before.sequence:
        fits = at.generation == before.generation or isinstance(next_one.event, GenerationStart) or not before.sequence
    else:
        fits = at == before
    if not fits:
        raise PipelineError(f"what is archived as {at} and {before} is of different histories: use --archived-node")


def furthest(files: Iterable[FileEntry], first: int, gaps: Iterable[Gap] = ()) -> tuple[str, int] | None:
    """The node whose files go on without a gap from ``first`` for longest, and up to where; None if no node's do.

    What was given up by the cluster is a gap, too.
    """
    files = list(files)
    of_nodes: dict[str, list[FileEntry]] = {}
    for each in files:
        of_nodes.setdefault(each.node, []).append(each)
    lost = [gap for gap in (*gaps, *superseded(files)) if gap.given_up and gap.last >= first]
    found = []
    for node, entries in of_nodes.items():
        ends = [at - 1 for at in breaks(entries) if at > first]
        ends += [gap.first - 1 for gap in lost if gap.node == node]
        end = min([_without_gap(entries, first), *ends])
        if end >= first:
            found.append((node, end))
    return max(found, key=lambda each: (each[1], each[0]), default=None)


def _without_gap(files: Iterable[FileEntry], first: int) -> int:
    """Up to where files of one node have every number from ``first`` on; less than that if they lack it."""
    end = first - 1
    for each in sorted(files, key=lambda each: each.first):
        if each.first <= end + 1:
            end = max(end, each.last)
    return end
