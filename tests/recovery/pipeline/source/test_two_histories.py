"""A log is cut between the plan of a query and the reading of its parts: no query gets rows of two histories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from recovery.pipeline.selection import Selection
from recovery.pipeline.source.batch import BatchReader
from recovery.pipeline.source.log_sites import Directory
from recovery.pipeline.source.options import parse_options
from recovery.pipeline.source.ranges import LogRange, log_ranges
from recovery.reader.log_reading import LogCut
from recovery.reader.marks import Mark
from recovery.reader.node_log import NodeLog
from recovery.store.log import Log, LogReclaimed
from recovery.store.segment import SegmentInfo, segment_firsts, segment_path
from tests.recovery.pipeline.events import write_node
from txobserver.events import Delivered, Event
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Position
from txobserver.ports.store import StoreError

END = 20


def frames(generation: int, first: int, last: int) -> list[list[Event]]:
    return [[Delivered(1, 1000 * generation + at)] for at in range(first, last + 1)]


def cut(directory: Path, keep: int, last: int) -> None:
    """Events behind ``keep`` had not passed the commit point: the next primary did not have them, and wrote others."""
    log = Log(directory / "log", lambda at: SegmentInfo("c", "n1", "i", at, 0), 1 << 20, Position(0, 0))
    list(log.recover(Position(0, 0)))
    log.truncate(keep, Position(1, keep))
    for at, events in enumerate(frames(2, keep + 1, last), keep + 1):
        log.append([encode_frame(2, at, events, 5)])
    log.close()


def planned(directory: Path, **options: str) -> tuple[BatchReader, list[InputPartition]]:
    reader = BatchReader(parse_options({"path": str(directory), **options}))
    return reader, reader.partitions()


def asked(reader: BatchReader, parts: list[InputPartition]) -> list[tuple[int, int]]:
    rows: list[dict[str, Any]] = [row for part in parts for each in reader.read(part) for row in each.to_pylist()]
    return [(row["generation"], row["position"]) for row in rows]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    write_node(tmp_path / "n1", frames(1, 1, END))
    return tmp_path / "n1"


def test_two_parts_of_one_plan_are_of_one_history(node: Path) -> None:
    """The first parts were read; then the log was cut within them, and grew beyond its end of before."""
    reader, parts = planned(node, partitionBytes="300")
    assert len(parts) > 3
    assert asked(reader, parts[:-1]) == [(1, at) for at in range(1, parts[-1].first)]  # type: ignore[attr-defined]
    cut(node, parts[-2].first, END + 5)  # type: ignore[attr-defined]
    for part in parts:
        with pytest.raises(LogCut, match=r"was cut at .* read it again"):
            asked(reader, [part])
    assert asked(*planned(node))[-1] == (2, END + 5)


def test_a_frame_that_is_asked_twice_gives_no_other_history(node: Path) -> None:
    """Where its first part begins, the same frame stands as when it was planned."""
    reader, parts = planned(node)
    before = asked(reader, parts)
    assert before == [(1, at) for at in range(1, END + 1)]
    cut(node, 9, END - 5)
    with pytest.raises(LogCut, match=f"was cut at {END} or before since the query was planned, and ends before that"):
        asked(reader, parts)
    write_node(node, frames(2, END - 4, END + 5), generation=2)
    with pytest.raises(LogCut, match=f"was cut at {END} or before since the query was planned, and holds 2.{END} now"):
        asked(reader, parts)


class Cutting(NodeLog):
    """Is cut when all that was asked for has been given."""

    def frames(self, first: int, last: int = END, start: Mark | None = None) -> Iterator[Frame]:
        yield from super().frames(first, last, start)
        if last < END:
            cut(self.directory.parent, 9, END)


class CutMeanwhile(Directory):
    """A directory whose log is cut while a part of it is read."""

    def log(self) -> NodeLog:
        return Cutting(Path(self.directory), self.node)


def test_a_log_that_is_cut_when_a_part_has_been_read(node: Path) -> None:
    """What was given of the part stands still, but not what was planned behind it."""
    part, *_ = log_ranges(CutMeanwhile("n1", str(node)), 1, END, 1 << 20, Selection())
    assert isinstance(part, LogRange)
    with pytest.raises(LogCut, match="since the query was planned"):
        list(LogRange(part.place, 1, 5, part.start, part.planned).rows(Selection()))


def test_what_was_planned_is_reclaimed_and_not_cut(tmp_path: Path) -> None:
    directory = tmp_path / "n1"
    write_node(directory, frames(1, 1, END), segment_bytes=1)
    part, *_ = log_ranges(there := Directory("n1", str(directory)), 1, 9, 1 << 20, Selection())
    assert isinstance(part, LogRange)
    for first in segment_firsts(directory / "log")[:12]:
        segment_path(directory / "log", first).unlink()
    with pytest.raises(LogReclaimed, match="have been reclaimed"):
        list(part.rows(Selection()))
    assert list(part.rows(Selection(), tolerant=True)) == []
    with pytest.raises(LogReclaimed):
        log_ranges(there, 1, 9, 1 << 20, Selection())


def test_the_log_of_another_node_is_not_called_cut(node: Path, tmp_path: Path) -> None:
    """An executor sees another directory under the same name."""
    reader, parts = planned(node)
    node.rename(tmp_path / "away")
    for generation in (1, 2):
        write_node(node, frames(generation, 1, END), "n2", generation=generation)
        with pytest.raises(StoreError, match=r"holds the log of node n2 on .* all machines must see the same"):
            asked(reader, parts)
        node.rename(tmp_path / f"away-{generation}")


def test_a_log_that_changes_under_the_plan(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut between the look at how far it goes and the one at its parts."""
    ranges = Directory.ranges

    def cut_then(*asked: Any) -> Any:
        yield from ranges(*asked)
        cut(node, 9, 12)

    monkeypatch.setattr(Directory, "ranges", cut_then)
    with pytest.raises(LogCut, match=f"held event {END} just before, and does not now; read it again"):
        planned(node)
