"""Parts of logs and of archives, as Spark hands them to the processes that read them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from recovery.pipeline.archive.lake import FileEntry
from recovery.pipeline.archive.reading import file_rows, wanted_files
from recovery.pipeline.node import ReadableLog, rows_of
from recovery.pipeline.selection import Selection
from recovery.pipeline.source.log_sites import LogSite
from recovery.reader.log_reading import LogCut
from recovery.reader.marks import Mark
from recovery.store.log import LogReclaimed
from txobserver.frames import Frame
from txobserver.ids import Position

log = logging.getLogger("txha.pipeline")


class LogRange(InputPartition):
    """The events from ``first`` to ``last`` of a node; the frame that holds the first begins at ``start``.

    ``planned``: the position of the last event of all parts that were planned together. As long as it stands there,
    nothing before it was cut, and they all are of the history that was planned.
    """

    def __init__(
        self, place: LogSite, first: int, last: int, start: Mark | None = None, planned: Position | None = None
    ) -> None:
        super().__init__((place.node, first, last))
        self.place = place
        self.first = first
        self.last = last
        self.start = start
        self.planned = planned

    def rows(self, selection: Selection, tolerant: bool = False) -> Iterator[pa.RecordBatch]:
        """Its rows that are selected.

        ``tolerant``: what is reclaimed while this runs is left out, with a warning. Raises LogReclaimed otherwise,
        and StoreDamaged; LogCut if the log ends before the last one, or no longer holds what was planned.
        """
        whole, first = self.place.log(), self.first
        source = _Read(whole, self.first - 1)
        while True:
            try:
                self._check(whole)
                yield from rows_of(source, self.place.node, first, self.last, self.start, selection)
                break
            except LogReclaimed as error:
                if not tolerant:
                    raise
                there = self.place.extent("log").first
                asked, first = first, max(there, source.reached + 1)
                if first == asked:
                    raise  # it would be asked for the same again
                if first > source.reached + 1:
                    log.warning("%s; failOnDataLoss is false: the events before %d are left out", error, first)
                if first > self.last:
                    return
        if source.reached < self.last:
            raise LogCut(
                f"the log of node {self.place.node} ended at {source.reached} and not at {self.last}, up to which it "
                "was to be read: it was cut, or its node knows less of the commit point since its start; read it again"
            )
        with suppress(LogReclaimed):  # everything has been read by now
            self._check(whole)

    def _check(self, whole: ReadableLog) -> None:
        """Raise LogCut if the log holds another history than what was planned, or what its reader says of it."""
        if self.planned is None:
            return
        there = self.place.position(self.planned.sequence, whole)
        if there == self.planned:
            return
        for _ in whole.frames(self.planned.sequence, self.planned.sequence):
            pass  # it was reclaimed, or this is the log of another node
        raise LogCut(
            f"the log of node {self.place.node} was cut at {self.planned.sequence} or before since the query was "
            f"planned, and {'ends before that' if there is None else f'holds {there}'} now; read it again"
        )


class _Read:
    """A log of which is known up to where it has been read; what has been read is not read again."""

    def __init__(self, log: ReadableLog, reached: int) -> None:
        self._log = log
        self.reached = reached
        self.backwards, self.names, self.declared = log.backwards, log.names, log.declared

    def frames(self, first: int, last: int, start: Mark | None = None) -> Iterator[Frame]:
        """As ``log.frames``."""
        for frame in self._log.frames(first, last, start):
            yield frame
            self.reached = frame.last


class ArchivedFiles(InputPartition):
    """Some files of an archive."""

    def __init__(self, archive: str, paths: list[str]) -> None:
        super().__init__((archive, paths))
        self.archive = archive
        self.paths = paths

    def rows(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Their rows that are selected."""
        return file_rows(Path(self.archive), self.paths, selection)


def archived_files(archive: str, size: int, selection: Selection) -> list[InputPartition]:
    """Partitions of about ``size`` bytes of an archive, without files that need not be read. Raises PipelineError."""
    groups: list[list[FileEntry]] = []
    for entry in wanted_files(Path(archive), selection):
        if groups and sum(each.bytes for each in groups[-1]) + entry.bytes <= size:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [ArchivedFiles(archive, [entry.path for entry in group]) for group in groups]


def log_ranges(place: LogSite, first: int, last: int, size: int, selection: Selection) -> list[InputPartition]:
    """Partitions of about ``size`` bytes of a node's log, without what need not be read.

    Raises LogReclaimed, and LogCut where the log has changed while it was looked at.
    """
    first, last = selection.positions(first, last)
    parts = list(place.ranges(first, last, size, selection))
    planned = place.position(last) if parts else None
    if parts and planned is None:
        raise LogCut(f"the log of node {place.node} held event {last} just before, and does not now; read it again")
    return [LogRange(place, *each, planned) for each in parts]
