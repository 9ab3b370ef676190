"""Batch reading: partitions by node and log range, filters pushed down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from recovery.pipeline.archive.lake import Lake
from recovery.pipeline.selection import ColumnCondition, Operation
from recovery.pipeline.source.log_sites import places_of
from recovery.pipeline.source.options import LogSourceOptions
from recovery.pipeline.source.ranges import ArchivedFiles, LogRange, archived_files, log_ranges

_COMPARED: dict[type[Filter], Operation] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.In: "in",
    spark.StringStartsWith: "starts",
    spark.StringEndsWith: "ends",
    spark.StringContains: "contains",
}


class BatchReader(DataSourceReader):
    """Reads what the logs hold when the query begins.

    Filters are taken from Spark only where that is asked for: Spark 4.3 reads with those of one query also for the
    next ones of the same data frame, and for other parts of the query (docs/pipeline.md).
    """

    def __init__(self, options: LogSourceOptions) -> None:
        self._options = options
        self._selection = options.selection
        if options.push_filters:
            self.pushFilters = _Pushed(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        taken = []
        for each in filters:
            condition = condition_of(each)
            if condition is None:
                yield each
            else:
                taken.append(condition)
        self._selection = self._selection.and_(taken)

    def partitions(self) -> list[InputPartition]:
        """About equal in bytes."""
        options, selection = self._options, self._selection
        archives = [path for path in options.paths if Lake(Path(path)).exists]
        found = [each for path in archives for each in archived_files(path, options.partition_bytes, selection)]
        logs = replace(options, paths=tuple(path for path in options.paths if path not in archives))
        nodes = selection.values("node")
        for place in places_of(logs):
            if nodes is None or place.node in nodes:
                extent = place.extent(options.until or "log")
                found += log_ranges(place, extent.first, extent.last, options.partition_bytes, selection)
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Batches of one partition; Spark makes an empty one where there is none."""
        return partition.rows(self._selection) if isinstance(partition, LogRange | ArchivedFiles) else iter(())


class _Pushed:
    """``pushFilters`` of a reader that also works where ``spark.sql.python.filterPushdown.enabled`` is off.

    There, Spark refuses a reader that overrides the method rather than never calling it, and the process that makes
    the reader cannot see the setting. So the method is not overridden by the looks of it.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


def condition_of(pushed: Filter) -> ColumnCondition | None:
    """What a filter of Spark says, if it can be applied exactly."""
    negated = isinstance(pushed, spark.Not)
    inner: Any = pushed.child if isinstance(pushed, spark.Not) else pushed
    if len(inner.attribute) != 1:
        return None
    (column,) = inner.attribute
    if isinstance(inner, spark.IsNull | spark.IsNotNull):
        found = ColumnCondition(column, "null", negated=negated != isinstance(inner, spark.IsNotNull))
    elif type(inner) in _COMPARED:
        found = ColumnCondition(column, _COMPARED[type(inner)], inner.value, negated)
    else:
        return None
    return found if found.possible else None
