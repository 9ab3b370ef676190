"""The streaming job that fills the archive, each event of each node exactly once.

A batch writes files that no reader sees, and then one manifest that names them and says up to which position each node
is archived. What a batch brings up to there already is left out, so a batch that is repeated (after a crash between the
manifest and Spark's checkpoint, or with a checkpoint that was lost) adds nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from recovery.pipeline.archive.files import write_rows
from recovery.pipeline.archive.history import breaks, given_up
from recovery.pipeline.archive.lake import FileEntry, Gap, Lake, Manifest
from recovery.pipeline.errors import PipelineError, reason
from recovery.pipeline.source.log_sites import places_of
from recovery.pipeline.source.offsets import Cluster, Offset, offset_at
from recovery.pipeline.source.options import parse_options
from recovery.store.crash_points import crash_point
from txobserver.ids import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("txha.pipeline")
MAX_EVENTS = 5_000_000
"""Of a batch: what is done again at most after a crash."""


@dataclass(frozen=True)
class ArchiveJob:
    """From where to where. ``options`` are those of the source (paths, nodes, cluster, failOnDataLoss)."""

    archive: Path
    options: Mapping[str, str]
    max_events: int = MAX_EVENTS

    @property
    def tolerant(self) -> bool:
        """Whether events that are lost are passed over, and noted as a gap."""
        return self.options.get("failOnDataLoss", "true").lower() == "false"

    def run(self, spark: SparkSession) -> None:
        """Archive what is there now.

        Raises PipelineError where that cannot be: no node, one of another cluster, events that are gone.
        """
        from pyspark.errors import StreamingQueryException

        lake = Lake(self.archive)
        before = lake.current()
        cluster = self.cluster(before)
        sweep(lake)
        source = spark.readStream.format("txha").options(**self.options).option("maxEventsPerBatch", self.max_events)
        if ends := self.begins(before, cluster):
            source = source.option("startingOffsets", json.dumps(ends))

        def append(frame: DataFrame, batch: int) -> None:
            self.append(frame, cluster)

        writer = source.load().writeStream.option("checkpointLocation", str(self.archive / "checkpoint"))
        query = writer.foreachBatch(append).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise PipelineError(reason(error)) from error
        finally:
            query.stop()

    def begins(self, before: Manifest, cluster: Cluster) -> Offset:
        """Where a stream without a checkpoint is to go on."""
        return {node: offset_at(cluster, end) for node, end in before.ends.items()}

    def append(self, frame: DataFrame, cluster: Cluster) -> None:
        """Add what the archive lacks of a batch. Raises PipelineError where events are missing."""
        lake = Lake(self.archive)
        before = lake.current()
        done = {node: end.sequence for node, end in before.ends.items()}
        entries = frame.mapInArrow(_writer(str(self.archive), done), "entry string").collect()
        written = [msgspec.json.decode(row.entry, type=FileEntry) for row in entries]
        parted = given_up(places_of(parse_options(self.options), _passed_over), before)
        of_cluster = msgspec.structs.replace(before, cluster=cluster.name, cluster_id=cluster.id)
        add_files(lake, of_cluster, written, self.tolerant, parted)

    def cluster(self, before: Manifest) -> Cluster:
        """The cluster that is archived. Raises PipelineError if there is another one, or none yet."""
        extents = [place.extent("commit") for place in places_of(parse_options(self.options))]
        clusters = [before.whose, *(extent.cluster for extent in extents)]
        names = sorted({each.name for each in clusters} - {""})
        identities = sorted({each.id for each in clusters} - {""})
        if not names:
            raise PipelineError("none of the nodes has a log yet")
        if len(names) != 1:
            raise PipelineError(f"an archive is of one cluster, not of {len(names)}: {', '.join(names)}")
        if len(identities) > 1:
            raise PipelineError(
                f"an archive is of one cluster; these are all called {names[0]}, and were founded apart, with the "
                f"identities {', '.join(identities)}: begin another archive"
            )
        return Cluster(names[0], "".join(identities))


def _passed_over(problem: Exception) -> None:
    """A node that cannot be read: the source has said so."""


def add_files(
    lake: Lake, before: Manifest, written: list[FileEntry], tolerant: bool, parted: Mapping[str, int] = {}
) -> Manifest:
    """Commit files that were written, if they follow what is archived without a gap. Returns the manifest.

    ``tolerant``: a gap is noted in the manifest instead of raised as PipelineError. ``parted``: node -> the first
    archived event that its cluster has given up, where that is known.
    """
    crash_point("archive.files-written")
    ends, gaps = dict(before.ends), list(before.gaps)
    for node in sorted({entry.node for entry in written}):
        files = [entry for entry in written if entry.node == node]
        begin = ends[node].sequence + 1 if node in ends else min(entry.first for entry in files)
        end = max(Position(entry.generation, entry.last) for entry in files)
        events = sum(entry.events for entry in files)
        whole = events == end.sequence - begin + 1
        if lost := _given_up(node, ends.get(node), files, whole, parted.get(node)):
            _refuse_or_warn(f"the cluster has given up archived events of node {node}, up to {lost[-1].last}", tolerant)
            gaps += lost
        if not whole:
            _refuse_or_warn(
                f"of the events {begin} to {end.sequence} of node {node} only {events} can be archived", tolerant
            )
            gaps.append(Gap(node, begin, end.sequence))
        ends[node] = end
    if not written:
        return before
    return lake.commit(msgspec.structs.replace(before, files=(*before.files, *written), ends=ends, gaps=tuple(gaps)))


def _refuse_or_warn(what: str, tolerant: bool) -> None:
    if not tolerant:
        raise PipelineError(f"{what}; failOnDataLoss=false goes on, and notes the gap")
    log.warning("%s; failOnDataLoss is false", what)


def _given_up(node: str, end: Position | None, files: list[FileEntry], whole: bool, parting: int | None) -> list[Gap]:
    """Where what is archived of a node, up to ``end``, or what is to be, was given up by its cluster.

    If it is not known since where, at least what stands directly in front of another history was. ``whole``: whether no
    event is missing in the files; else it may be missing there.
    """
    lasts = [at - 1 for at in breaks(files, end)]
    found = [Gap(node, last, last, given_up=True) for last in lasts if whole or (end and last == end.sequence)]
    if end is None or parting is None:
        return found
    return [Gap(node, parting, end.sequence, given_up=True), *(gap for gap in found if gap.last > end.sequence)]


def sweep(lake: Lake) -> None:
    """Remove files that no manifest has ever named: a job died before it could. Only while no job writes."""
    manifest = lake.current()
    named = {entry.path for entry in manifest.files} | manifest.removed.keys()
    lake.remove(path for each in list(lake.files()) if (path := str(each.relative_to(lake.directory))) not in named)


def _writer(archive: str, done: Mapping[str, int]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its rows: all of one node, in order."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        entries = write_rows(Path(archive), news(batches, done))
        yield pa.RecordBatch.from_pydict({"entry": [msgspec.json.encode(entry).decode() for entry in entries]}, _ENTRY)

    return write


_ENTRY = pa.schema([("entry", pa.string())])


def news(batches: Iterable[pa.RecordBatch], done: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """The rows behind the positions up to which their nodes are archived."""
    for batch in batches:
        for node, last in done.items():
            old = pc.and_(pc.equal(batch["node"], node), pc.less_equal(batch["position"], last))
            batch = batch.filter(pc.invert(old))
        if batch.num_rows:
            yield batch
