"""Rows into the archive's files, and out of them again in order."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recovery.pipeline.archive.history import BEGINNING
from recovery.pipeline.archive.lake import FileEntry
from recovery.pipeline.schema import ARROW
from recovery.store.files import REAL_FILES
from txobserver.ids import Position

FILE_BYTES = 256 << 20
"""Of a file's rows in memory, before they are compressed; then the next file begins."""
GROUP_ROWS = 65_536
"""Rows of a row group: what is read at least, where only some rows are wanted."""
COMPRESSION = "zstd"
_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Day(NamedTuple):
    node: str
    date: str


class _File:
    """One file that is being written."""

    def __init__(self, archive: Path, day: _Day) -> None:
        self._archive = archive
        self._day = day
        folder = archive / "data" / f"node={quote(day.node, safe='')}" / f"date={day.date}"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{uuid.uuid4().hex}.parquet"
        self._writer = pq.ParquetWriter(self._path, ARROW, compression=COMPRESSION, write_page_checksum=True)
        self._pending: list[pa.RecordBatch] = []
        self._positions: list[Any] = []
        self._times: list[Any] = []
        self._rows = 0
        self.bytes = 0
        self.last = self._generation = 0
        self._begins: list[Position] = []
        self._begun: list[int] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._positions.append(batch.column("position").to_numpy())
        self._times.append(batch.column("time").cast(pa.int64()).to_numpy())
        self._rows += batch.num_rows
        self.last = batch["position"][-1].as_py()
        self._note_generations(batch)
        self.bytes += batch.nbytes
        if sum(each.num_rows for each in self._pending) >= GROUP_ROWS:
            self._flush()

    def _note_generations(self, batch: pa.RecordBatch) -> None:
        generations = batch.column("generation").to_numpy()
        for at in np.flatnonzero(np.diff(generations, prepend=self._generation)).tolist():
            self._begins.append(Position(int(generations[at]), batch["position"][at].as_py()))
        self._generation = int(generations[-1])
        self._begun += generations[pc.equal(batch["kind"], BEGINNING).to_numpy(zero_copy_only=False)].tolist()

    def close(self) -> FileEntry:
        """The file is on disk, and this is what a manifest is to say of it."""
        self._flush()
        self._writer.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            REAL_FILES.sync(descriptor)
        finally:
            os.close(descriptor)
        for each in self._path.parents:  # the day's, the node's, …: any of them may be new
            REAL_FILES.sync_directory(each)
            if each == self._archive:
                break
        positions, times = np.concatenate(self._positions), np.concatenate(self._times)
        return FileEntry(
            str(self._path.relative_to(self._archive)),
            self._day.node,
            self._day.date,
            self._rows,
            int(np.count_nonzero(np.diff(positions)) + 1),
            self._path.stat().st_size,
            int(positions.min()),
            int(positions.max()),
            self._generation,
            int(times.min()) // 1000,
            int(times.max()) // 1000,
            tuple(self._begins),
            tuple(self._begun),
        )

    def abandon(self) -> None:
        """It is not wanted after all."""
        self._writer.close()
        self._path.unlink()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=GROUP_ROWS)
            self._pending = []


def write_rows(archive: Path, batches: Iterable[pa.RecordBatch]) -> list[FileEntry]:
    """Write rows, those of a node in order, to new files that no manifest names yet; returns what they are.

    The rows of an event must all be among them. Raises OSError.
    """
    open_files: dict[_Day, _File] = {}
    done: list[FileEntry] = []
    try:
        for batch in batches:
            for day, part in _by_day(batch):
                file = open_files.get(day)
                if file is not None and file.bytes >= FILE_BYTES and part["position"][0].as_py() > file.last:
                    done.append(file.close())
                    file = None
                if file is None:
                    file = open_files[day] = _File(archive, day)
                file.write(part)
        done += [file.close() for file in open_files.values()]
        open_files = {}
        return done
    finally:
        for file in open_files.values():
            file.abandon()


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[_Day, pa.RecordBatch]]:
    """The rows of each node and day."""
    days = batch.column("time").cast(pa.int64()).to_numpy() // _DAY
    nodes = batch.column("node")
    for node in pc.unique(nodes).to_pylist():
        of_node = pc.equal(nodes, node)
        for day in np.unique(days[of_node.to_numpy(zero_copy_only=False)]).tolist():
            chosen = batch.filter(pc.and_(of_node, pa.array(days == day)))
            yield _Day(node, (_EPOCH + timedelta(days=day)).date().isoformat()), chosen


def rows_of_files(archive: Path, entries: Iterable[FileEntry]) -> Iterator[pa.RecordBatch]:
    """All rows of these files, by node, position and part.

    Files follow each other, but around midnight, where two of one node may cross: those are sorted together.
    """
    crossing: list[FileEntry] = []
    for entry in sorted(entries, key=lambda each: (each.node, each.first, each.last)):
        if crossing and (entry.node != crossing[0].node or entry.first > max(each.last for each in crossing)):
            yield from _in_order(archive, crossing)
            crossing = []
        crossing.append(entry)
    if crossing:
        yield from _in_order(archive, crossing)


def _in_order(archive: Path, entries: list[FileEntry]) -> Iterator[pa.RecordBatch]:
    if len(entries) == 1:
        with pq.ParquetFile(archive / entries[0].path, page_checksum_verification=True) as file:
            yield from file.iter_batches(GROUP_ROWS)
        return
    table = pa.concat_tables([_whole(archive / entry.path) for entry in entries])
    yield from table.sort_by([("position", "ascending"), ("part", "ascending")]).to_batches(GROUP_ROWS)


def _whole(path: Path) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read()
