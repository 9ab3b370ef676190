"""Streaming: what has passed the commit point, batch by batch, each event once, also across restarts.

An offset says for each node which event of it was read last, and of which cluster (``source.offsets``). The cluster's
identity, and generation and sequence together, tell whether the log that is there is still the one that was read: where
it is not, or begins later than the next event, that is a loss, and never passed over in silence. A node that is new
gets a place in an offset before anything of it is read, so that a batch that is repeated after a restart is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.source.log_sites import Extent, LogSite, places_of
from recovery.pipeline.source.offsets import Cluster, Offset, cluster_in, offset_at, position_of
from recovery.pipeline.source.options import LogSourceOptions
from recovery.pipeline.source.ranges import LogRange, log_ranges
from recovery.reader.log_reading import READINGS, LogCut
from recovery.store.log import LogReclaimed
from txobserver.ids import Position
from txobserver.ports.store import StoreError

log = logging.getLogger("txha.pipeline")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's. Spark keeps it in one process as long as the query runs."""

    def __init__(self, options: LogSourceOptions) -> None:
        if options.until == "log":
            raise PipelineError("a stream reads up to the commit point only; until=log is for batches")
        self._options = options
        self._places: dict[str, LogSite] = {}
        self._target: dict[str, int] | None = None
        self._seen: Offset | None = None

    # -- offsets

    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins."""
        starting = self._options.starting
        if isinstance(starting, dict):
            for node, each in starting.items():
                position_of(each, node)
            return starting
        extents = self._extents()
        if starting == "earliest":
            found = {node: _before(each) for node, each in extents.items()}
        else:
            found = self._offset((node, each, each.last) for node, each in extents.items())
        if not found:
            raise PipelineError("none of the nodes can be read")
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many events for each batch as the option ``maxEventsPerBatch`` says."""
        limit = self._options.max_events
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """What can be read now is where the query is to end."""
        self._target = {node: extent.last for node, extent in self._extents().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where a batch that begins at ``start`` ends; ``start`` itself if nothing is new."""
        extents = self._extents()
        self._seen = self._offset((node, extent, extent.last) for node, extent in extents.items())
        end, more = dict(start), {}
        for node in self._seen:
            extent = extents[node]
            last = extent.last if self._target is None else min(extent.last, self._target.get(node, 0))
            if node not in start:
                if self._target is None or node in self._target:
                    end[node] = _before(extent)
            elif extent.cluster.is_another(before := cluster_in(start[node])):
                self._lost(f"node {node} belongs to cluster {extent.cluster} now, not to {before}")
                end[node] = _before(extent)
            else:
                read = position_of(start[node], node).sequence
                if extent.last < read:
                    log.warning("node %s was read up to %d and is at %d now; waiting for it", node, read, extent.last)
                more[node] = max(last - read, 0)
        taken = []
        for node, count in _shares(more, limit).items():
            if count:
                known = extents[node]._replace(cluster=extents[node].cluster.known_as(cluster_in(start[node])))
                taken.append((node, known, position_of(start[node], node).sequence + count))
        return {**end, **self._offset(taken)}

    def reportLatestOffset(self) -> Offset | None:
        """How far the logs went when they were looked at last."""
        return self._seen

    # -- batches

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The events behind ``start`` up to ``end``. Raises PipelineError where some are lost."""
        found: list[InputPartition] = []
        for node, each in end.items():
            if node not in start or not self._wanted(node):
                continue  # it begins there, or an earlier start of the query wanted it
            cluster, before = cluster_in(each), cluster_in(start[node])
            read, last = position_of(start[node], node), position_of(each, node).sequence
            if read.sequence < last and not cluster.is_another(before):
                found += self._parts(self._place(node), cluster.known_as(before), read, last)
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Batches of one partition."""
        if not isinstance(partition, LogRange):
            return iter(())
        return partition.rows(self._options.selection, tolerant=not self._options.fail_on_data_loss)

    def commit(self, end: Offset) -> None:
        """Nothing is kept for it: the logs' retention does not wait for readers."""

    def stop(self) -> None:
        """Nothing is held."""

    # -- nodes

    def _extents(self) -> dict[str, Extent]:
        """What can be read of each node now; a node that cannot be read is left out, with a warning."""
        self._look()
        found = {}
        for node, place in self._places.items():
            try:
                extent = place.extent("commit")
            except StoreError as error:
                _warn(error)
                continue
            if extent.cluster.name:
                found[node] = extent
        return found

    def _look(self) -> None:
        """Find nodes; those that are known stay known, where they are now."""
        for place in places_of(self._options, _warn):
            if self._wanted(place.node) and self._places.get(place.node) != place:
                self._places[place.node] = place
        if not self._places:
            places_of(self._options)  # says why

    def _wanted(self, node: str) -> bool:
        """Whether the option ``node`` allows it: what becomes of any other is no matter of this query."""
        nodes = self._options.selection.values("node")
        return nodes is None or node in nodes

    def _place(self, node: str) -> LogSite:
        if node not in self._places:
            self._look()
        if node not in self._places:
            raise PipelineError(f"node {node}, of which a batch is to be read, cannot be read now")
        return self._places[node]

    def _offset(self, events: Iterable[tuple[str, Extent, int]]) -> Offset:
        """The offset of one event of each node; a node that cannot be read any more is left out, with a warning."""
        found = {}
        for node, extent, sequence in events:
            try:
                position = self._places[node].position(sequence)
            except StoreError as error:
                _warn(error)
            else:
                found[node] = offset_at(extent.cluster, position or Position(0, sequence))
        return found

    def _parts(self, place: LogSite, cluster: Cluster, read: Position, last: int) -> list[InputPartition]:
        """What is to be read of a node. Where its log changes between two looks at it, it is looked at again."""

        def looked() -> list[InputPartition]:
            first, end = self._checked(place, cluster, read, last)
            return log_ranges(place, first, end, self._options.partition_bytes, self._options.selection)

        for _ in range(READINGS - 1):
            with suppress(LogReclaimed, LogCut):
                return looked()
        return looked()

    def _checked(self, place: LogSite, cluster: Cluster, read: Position, last: int) -> tuple[int, int]:
        """The first and the last event that are to be read; after a loss, those that there are.

        Raises StoreError where a node does not know yet that they have passed the commit point.
        """
        there = place.extent("log")
        first, end = there.first, there.last
        if there.cluster.is_another(cluster):
            lost = f"the events {read.sequence + 1} to {last} of {cluster} are not there any more"
            self._lost(f"node {place.node} belongs to cluster {there.cluster} now: {lost}")
            return last + 1, last
        if end < (last if there.tail is None else min(last, there.tail)):
            raise StoreError(
                f"node {place.node} knows only up to {end} what has passed the commit point, before {last}, up to "
                "which it was to be read: since its start its primary has not told it more; ask again"
            )
        at = place.position(read.sequence)
        if at is not None and read.generation and at.generation != read.generation:
            self._lost(f"event {read} of node {place.node} was read; its cluster has given it up, and has {at} instead")
        if end < last:
            self._lost(f"the log of node {place.node} ends at {end}, before {last}, up to which it was to be read")
        if first > read.sequence + 1:
            self._lost(
                f"the events {read.sequence + 1} to {first - 1} of node {place.node} went before they were read: "
                f"reclaimed, which a longer store.retention_seconds defers, or passed over by a copy of the queues"
            )
        return max(first, read.sequence + 1), min(last, end)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise PipelineError(f"{what}. Begin with a new checkpoint, or go on without them with failOnDataLoss=false")
        log.warning("%s; failOnDataLoss is false: going on with what is there", what)


def _warn(problem: Exception) -> None:
    log.warning("going on with what can be read: %s", problem)


def _before(extent: Extent) -> dict[str, str]:
    """Before the first event that there is. No generation is 0: nothing has been read."""
    return offset_at(extent.cluster, Position(0, extent.first - 1))


def _shares(available: dict[str, int], limit: ReadLimit) -> dict[str, int]:
    """How many events of each node a batch takes: as equal as the limit allows, the nodes with little to read first."""
    if not isinstance(limit, ReadMaxRows):
        return available
    left, shares = limit.max_rows, {}
    waiting = sorted(available, key=lambda node: (available[node], node))
    for at, node in enumerate(waiting):
        shares[node] = min(available[node], left // (len(waiting) - at))
        left -= shares[node]
    return shares
