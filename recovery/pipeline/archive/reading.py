"""Rows of the archive: of one node in order, or the selected ones of some files; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from recovery.pipeline.archive.files import rows_of_files
from recovery.pipeline.archive.lake import FileEntry, Lake
from recovery.pipeline.node import EVERYTHING
from recovery.pipeline.selection import ColumnCondition, Selection
from recovery.reader.marks import END

CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
"""Every page has a checksum (``files``): a flipped bit is an error, not another event."""
_PRUNED = ("transaction", "queue", "kind", "xid")
"""Columns by whose least and greatest values whole row groups are passed over."""


def archive_rows(archive: Path, node: str, first: int = 1, last: int = END) -> Iterator[pa.RecordBatch]:
    """Rows of one node's events from ``first`` to ``last``, by position and part. Raises PipelineError."""
    wanted = Selection(
        (
            ColumnCondition("node", "=", node),
            ColumnCondition("position", ">=", first),
            ColumnCondition("position", "<=", last),
        )
    )
    for batch in rows_of_files(archive, wanted_files(archive, wanted)):
        if (chosen := wanted.apply(batch)).num_rows:
            yield chosen


def wanted_files(archive: Path, selection: Selection = EVERYTHING) -> list[FileEntry]:
    """The files in which selected rows can be. Raises PipelineError."""
    first, last = selection.positions(1, END)
    after, before = selection.times()
    nodes = selection.values("node")
    return [
        each
        for each in Lake(archive).current().files
        if (nodes is None or each.node in nodes)
        and each.first <= last
        and each.last >= first
        and each.time_first <= before
        and each.time_last >= after
    ]


def file_rows(archive: Path, paths: list[str], selection: Selection) -> Iterator[pa.RecordBatch]:
    """What is selected of some files."""
    columns = selection.needed.names
    for path in paths:
        dataset = ds.dataset(archive / path, format=CHECKED)
        for batch in dataset.to_batches(columns=columns, filter=_filter(selection), batch_size=10_000):
            if (chosen := selection.apply(batch)).num_rows:
                yield chosen


def _filter(selection: Selection) -> Any:
    """What Parquet's statistics can decide; the selection itself is applied afterwards."""
    found = None
    for column in _PRUNED:
        values = selection.values(column)
        if values is not None and None not in values:
            each = ds.field(column).isin(sorted(values))
            found = each if found is None else found & each
    return found
