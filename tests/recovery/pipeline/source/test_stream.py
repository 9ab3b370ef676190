"""Streams of logs: nothing lost, nothing twice, nothing that could still be cut; and whatever is missing is said."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.node import node_table
from recovery.pipeline.selection import Selection
from recovery.pipeline.source.log_sites import Directory
from recovery.pipeline.source.options import parse_options
from recovery.pipeline.source.ranges import LogRange
from recovery.pipeline.source.stream import StreamReader
from recovery.store.log import LogReclaimed
from tests.recovery.pipeline.events import STORY, apply_up_to, write_node
from txobserver.events import Delivered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slice

END = sum(map(len, STORY))
EVERYTHING = ReadAllAvailable()
Rows = list[dict[str, Any]]


def reader(path: Path, **options: str) -> StreamReader:
    return StreamReader(parse_options({"path": str(path), **options}))


def read(stream: StreamReader, start: Any, end: Any) -> Rows:
    return [row for part in stream.partitions(start, end) for batch in stream.read(part) for row in batch.to_pylist()]


def drain(stream: StreamReader, start: Any, limit: Any = EVERYTHING) -> tuple[list[Rows], Any]:
    """The batches until nothing is new, and the offset then."""
    batches = []
    while (end := stream.latestOffset(start, limit)) != start:
        batches.append(read(stream, start, end))
        start = end
    return batches, start


def rows(directory: Path, first: int = 1, last: int = END) -> Rows:
    return [row for row in node_table(directory).to_pylist() if first <= row["position"] <= last]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    directory = tmp_path / "n1"
    write_node(directory, STORY, segment_bytes=1)
    apply_up_to(directory, END)
    return directory


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_each_event_once_in_batches_of_any_size(node: Path, limit: int) -> None:
    stream = reader(node)
    batches, end = drain(stream, stream.initialOffset(), ReadMaxRows(limit))
    assert [row for batch in batches for row in batch] == rows(node)
    assert max(len({row["position"] for row in batch}) for batch in batches) == min(limit, END)
    assert end == {"n1": {"cluster": "c", "position": f"1.{END}"}} == stream.reportLatestOffset()


def test_nothing_behind_the_commit_point(node: Path) -> None:
    apply_up_to(node, 10)
    stream = reader(node)
    batches, end = drain(stream, stream.initialOffset())
    assert batches == [rows(node, 1, 10)]
    apply_up_to(node, 14)
    batches, end = drain(stream, end)
    assert batches == [rows(node, 11, 14)]
    with pytest.raises(PipelineError, match="up to the commit point only"):
        reader(node, until="log")


def test_a_batch_that_is_repeated_after_a_restart_is_the_same(node: Path) -> None:
    first = reader(node)
    offsets = [first.initialOffset()]
    while (end := first.latestOffset(offsets[-1], ReadMaxRows(5))) != offsets[-1]:
        offsets.append(end)
    for start, end in pairwise(offsets):
        assert read(reader(node), start, end) == read(first, start, end)


def test_all_that_is_there_now_and_no_more(node: Path) -> None:
    stream = reader(node)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    write_node(node, [[Delivered(1, 1)]])
    apply_up_to(node, END + 1)
    write_node(node.parent / "n2", STORY, "n2")
    batches, end = drain(stream, start, ReadMaxRows(9))
    assert [row for batch in batches for row in batch] == rows(node)
    assert drain(reader(node), end)[0] == [rows(node, END + 1, END + 1)]


def test_where_a_stream_begins(node: Path) -> None:
    assert reader(node).initialOffset() == {"n1": {"cluster": "c", "position": "0.0"}}
    latest = reader(node, startingOffsets="latest").initialOffset()
    assert latest == {"n1": {"cluster": "c", "position": f"1.{END}"}}
    assert drain(reader(node), latest)[0] == []
    given = '{"n1": {"cluster": "c", "position": "1.7"}}'
    stream = reader(node, startingOffsets=given, queue="q")
    assert drain(stream, stream.initialOffset())[0] == [[row for row in rows(node, 8) if row["queue"] == "q"]]
    with pytest.raises(PipelineError, match="the offset of node n1 reads"):
        reader(node, startingOffsets='{"n1": 7}').initialOffset()


def test_what_retention_has_passed_is_said(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = {"n1": {"cluster": "c", "position": "1.2"}}
    segments = sorted((node / "log").iterdir())
    for each in segments[:3]:
        each.unlink()
    first = int(segments[3].stem)
    stream = reader(node)
    with pytest.raises(PipelineError, match=f"the events 3 to {first - 1} of node n1 went before they were read"):
        drain(stream, start)
    assert drain(reader(node, failOnDataLoss="false"), start)[0] == [rows(node, first)]
    assert f"the events 3 to {first - 1} of node n1" in caplog.text and "failOnDataLoss is false" in caplog.text


def test_what_is_reclaimed_while_it_is_read_is_said(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    part = LogRange(Directory("n1", str(node)), 1, END)
    for each in sorted((node / "log").iterdir())[:3]:
        each.unlink()
    with pytest.raises(LogReclaimed, match="have been reclaimed"):
        list(part.rows(Selection()))
    found = [row for batch in part.rows(Selection(), tolerant=True) for row in batch.to_pylist()]
    assert found == rows(node) and found[0]["position"] > 3
    assert "are left out" in caplog.text


@pytest.mark.parametrize("times", [1, 2, 100])
def test_what_is_reclaimed_between_two_looks(
    node: Path, times: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log began earlier when a batch was compared with it than when its parts are made."""
    start, left, extent = reader(node).initialOffset(), [times], Directory.extent

    def reclaimed_then(place: Directory, until: Any) -> Any:
        found = extent(place, until)
        if until == "log" and left[0]:
            left[0] -= 1
            min((node / "log").iterdir()).unlink()
        return found

    monkeypatch.setattr(Directory, "extent", reclaimed_then)
    if times == 100:
        with pytest.raises(LogReclaimed):
            drain(reader(node, failOnDataLoss="false"), start)
        return
    (found,) = drain(reader(node, failOnDataLoss="false"), start)[0]
    assert found == rows(node) and found[0]["position"] > 3
    assert f"the events 1 to {found[0]['position'] - 1} of node n1 went before they were read" in caplog.text
    left[0] = 1
    with pytest.raises(PipelineError, match="of node n1 went before they were read"):
        drain(reader(node), {"n1": {"cluster": "c", "position": f"1.{found[0]['position'] - 1}"}})


def test_a_log_that_took_another_way_is_said(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The cluster gave up events that had been read: an operator promoted a node that lacked them."""
    _, end = drain(reader(node), reader(node).initialOffset())
    shutil.rmtree(node)
    write_node(node, STORY, generation=2)
    write_node(node, [[Delivered(1, 1)]], generation=2)
    apply_up_to(node, END + 1)
    with pytest.raises(PipelineError, match=f"event 1.{END} of node n1 was read; its cluster has given it up"):
        drain(reader(node), end)
    assert drain(reader(node, failOnDataLoss="false"), end)[0] == [rows(node, END + 1, END + 1)]
    assert "has given it up" in caplog.text


def test_another_cluster_in_the_same_place_is_said(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, end = drain(reader(node), reader(node).initialOffset())
    shutil.rmtree(node)
    write_node(node, STORY, cluster="another")
    apply_up_to(node, END)
    with pytest.raises(PipelineError, match="belongs to cluster another now, not to c"):
        drain(reader(node), end)
    batches, _ = drain(reader(node, failOnDataLoss="false"), end)
    assert [row for batch in batches for row in batch] == rows(node)
    assert "belongs to cluster another" in caplog.text


def test_a_store_made_anew_is_waited_for(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, end = drain(reader(node), reader(node).initialOffset())
    stream = reader(node)
    shutil.rmtree(node)
    write_node(node, STORY[:3])
    apply_up_to(node, 3)
    assert drain(stream, end) == ([], end)
    assert "waiting for it" in caplog.text
    write_node(node, STORY[3:])
    write_node(node, [[Delivered(1, 1)]])
    apply_up_to(node, END + 1)
    assert drain(stream, end)[0] == [rows(node, END + 1, END + 1)]


def test_nodes_come_and_go(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = reader(node.parent)
    _, end = drain(stream, stream.initialOffset())
    other = node.parent / "n2"
    write_node(other, STORY[:4], "n2")
    apply_up_to(other, 11)
    batches, end = drain(stream, end)
    assert batches == [[], rows(other, 1, 11)], "a new node is in an offset before anything of it is read"
    node.rename(node.parent.parent / "away")
    write_node(other, STORY[4:], "n2")
    apply_up_to(other, END)
    batches, end = drain(stream, end)
    assert batches == [rows(other, 12)]
    (node.parent.parent / "away").rename(node)
    write_node(node, [[Delivered(1, 1)]])
    apply_up_to(node, END + 1)
    assert drain(stream, end)[0] == [rows(node, END + 1, END + 1)]
    node.rename(node.parent.parent / "away")
    with pytest.raises(PipelineError, match="n1"):
        read(reader(node.parent), {"n1": end["n1"]}, {"n1": {"cluster": "c", "position": f"1.{END + 1}"}})


def test_a_node_that_is_not_wanted_is_no_matter(node: Path) -> None:
    """What is lost of it, or that it has gone, ends no query of another one, and it takes no share of a batch."""
    other = node.parent / "n2"
    write_node(other, STORY, "n2", segment_bytes=1)
    apply_up_to(other, END)
    stream = reader(node.parent, node="n1")
    assert set(stream.initialOffset()) == {"n1"}
    start = {name: {"cluster": "c", "position": "1.2"} for name in ("n1", "n2")}
    first, *_ = sorted((other / "log").iterdir())
    first.unlink()
    assert stream.latestOffset(start, ReadMaxRows(5)) == {**start, "n1": {"cluster": "c", "position": "1.7"}}
    assert drain(stream, start)[0] == [rows(node, 3)]
    end = {name: {"cluster": "c", "position": f"1.{END}"} for name in ("n1", "n2")}
    shutil.rmtree(other)
    assert read(reader(node.parent, node="n1"), start, end) == rows(node, 3), "a batch of when both were wanted"


def test_nodes_share_a_batch(node: Path) -> None:
    write_node(node.parent / "n2", STORY[:2], "n2")
    apply_up_to(node.parent / "n2", 6)
    stream = reader(node.parent)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(14))
    assert {name: each["position"] for name, each in end.items()} == {"n1": "1.8", "n2": "1.6"}


def test_a_query_ends_and_goes_on_from_its_checkpoint(spark: SparkSession, node: Path, tmp_path: Path) -> None:
    out, apart = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> list[tuple[int, int]]:
        stream = spark.readStream.format("txha").option("maxEventsPerBatch", 8).load(str(node))
        query = stream.writeStream.format("parquet").option("checkpointLocation", apart).trigger(availableNow=True)
        query.start(out).awaitTermination()
        return sorted((row.position, row.part) for row in spark.read.parquet(out).select("position", "part").collect())

    apply_up_to(node, 17)
    assert run() == [(row["position"], row["part"]) for row in rows(node, 1, 17)]
    apply_up_to(node, END)
    assert run() == [(row["position"], row["part"]) for row in rows(node)]
    assert run() == [(row["position"], row["part"]) for row in rows(node)]
