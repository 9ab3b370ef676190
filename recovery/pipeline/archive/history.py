"""History: whether what is archived of a node follows in one history of its cluster.

Sequences rise by one, also where a cluster has given events up (``txha promote --accept-data-loss``): what was archived
as 1.1000 can be followed by 2.1001 though generation 2 began at 901. To say that the archive has every event, because
none of the numbers 1 to 1001 is missing, would be wrong by a hundred. Two things tell:

- A generation begins with an event that says so. Where the archive has events of a generation behind others, and not
  its beginning, the generation began somewhere in front of them, in the place of something else.
- The log of the node still holds, or holds no more, the event with which the archive of it ends. That also tells when a
  second generation has begun just behind it, and where the histories part.
- Another node's events. Of two nodes that are archived with different events for one sequence, the one with the later
  generation has what counts. The other may be gone, so that its log cannot be looked at, and may have had more events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from recovery.pipeline.archive.lake import FileEntry, Gap, Manifest
from txobserver.ids import Position
from txobserver.ports.store import StoreError

if TYPE_CHECKING:
    from recovery.pipeline.source.log_sites import LogSite

BEGINNING = "generation"
"""The kind of a generation's first event."""


def breaks(files: Iterable[FileEntry], before: Position | None = None) -> list[int]:
    """The sequences at which files of one node go on in another history, in order. ``before``: the event before them.

    Without one, whatever comes first has nothing to follow.
    """
    files = list(files)
    firsts: dict[int, int] = {}
    for generation, sequence in (begin for each in files for begin in begins(each)):
        firsts[generation] = min(sequence, firsts.get(generation, sequence))
    begun = {generation for each in files for generation in each.begun}
    begun.add(min(firsts, key=firsts.__getitem__, default=0) if before is None else before.generation)
    return sorted(first for generation, first in firsts.items() if generation not in begun)


def superseded(files: Iterable[FileEntry]) -> Iterator[Gap]:
    """What is archived of nodes, and has been given up, as the events show that other nodes have in its place."""
    files = list(files)
    seen: dict[int, int] = {}
    for generation, sequence in (begin for each in files for begin in begins(each)):
        seen[generation] = min(sequence, seen.get(generation, sequence))
    for each in files:
        parts = sorted(begins(each), key=lambda begin: begin.sequence)
        lasts = [begin.sequence - 1 for begin in parts[1:]] + [each.last]
        for begin, last in zip(parts, lasts, strict=True):
            later = [sequence for generation, sequence in seen.items() if generation > begin.generation]
            if later and min(later) <= last:
                yield Gap(each.node, max(begin.sequence, min(later)), last, given_up=True)


def begins(entry: FileEntry) -> tuple[Position, ...]:
    """The first event of each generation in a file; of one whose manifest does not say it, as if there were one."""
    return entry.begins or (Position(entry.generation, entry.first),)


def completed(archive: Path, entry: FileEntry) -> FileEntry:
    """What the manifest said from the beginning, or what the file itself says. Raises OSError, pyarrow's errors."""
    if entry.begins:
        return entry
    with pq.ParquetFile(archive / entry.path, page_checksum_verification=True) as file:
        columns = file.read(["generation", "position", "kind"]).to_pylist()
    found = [Position(columns[0]["generation"], columns[0]["position"])] if columns else []
    found += [
        Position(row["generation"], row["position"])
        for before, row in pairwise(columns)
        if row["generation"] != before["generation"]
    ]
    begun = tuple(row["generation"] for row in columns if row["kind"] == BEGINNING)
    return msgspec.structs.replace(entry, begins=tuple(found), begun=begun)


def given_up(places: Iterable[LogSite], manifest: Manifest) -> dict[str, int]:
    """Node -> the first archived event that its log has another one for, if there is one. A node that cannot be read
    is left out. Where the log does not go back so far that it has an archived event, the first of all is named."""
    found = {}
    for place in places:
        end = manifest.ends.get(place.node)
        if end is None:
            continue
        try:
            there = place.position(end.sequence)
            if there is not None and there != end:
                found[place.node] = _parting(place, manifest, end.sequence)
        except StoreError:
            continue
    return found


def _parting(place: LogSite, manifest: Manifest, end: int) -> int:
    archived = sorted(
        (begin.sequence, begin.generation)
        for each in manifest.files
        if each.node == place.node
        for begin in begins(each)
    )
    sequences = [sequence for sequence, _ in archived]

    def differs(sequence: int) -> bool:
        at = bisect_right(sequences, sequence) - 1
        there = place.position(sequence)
        return at < 0 or there is None or there.generation != archived[at][1]

    first = place.extent("log").first
    parting = first + bisect_left(range(first, end), True, key=differs)
    return 1 if parting == first else parting
