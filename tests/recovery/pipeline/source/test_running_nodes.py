"""Parts of the log of a running node, read by its address: nothing missing in silence, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from broker_plugin.node.log_server import LogReaderProtocol
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.remote import RemoteLog
from recovery.pipeline.selection import Selection
from recovery.pipeline.source.log_sites import Directory, RunningNode
from recovery.pipeline.source.options import parse_options
from recovery.pipeline.source.ranges import LogRange, log_ranges
from recovery.pipeline.source.stream import StreamReader
from recovery.reader.log_reading import LogCut
from recovery.reader.marks import Mark
from recovery.reader.node_connection import READ_SECRET
from recovery.reader.node_log import NodeLog
from recovery.store.groups import encode_group_header
from recovery.store.log import LogReclaimed
from recovery.store.segment import segment_firsts, segment_path
from tests.broker_plugin.node.served_log import END, Node
from tests.broker_plugin.node.served_log import running_node as running_node
from tests.recovery.pipeline.events import STORY, apply_up_to, message, write_node
from tests.recovery.reader.test_readers_meet_a_cut import damage_header
from tests.support.far_end import SECRET
from txobserver.events import Event, Publish, TxEnqueue, TxOpen
from txobserver.frames import Frame, encode_frame
from txobserver.ports.store import StoreError

EVERYTHING = Selection()


@pytest.fixture(autouse=True)
def of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers' secret."""
    monkeypatch.setenv(READ_SECRET, SECRET.decode())


def reclaim(node: Node, segments: int) -> None:
    for first in segment_firsts(node.directory / "log")[:segments]:
        segment_path(node.directory / "log", first).unlink()


async def positions(part: LogRange, tolerant: bool = False) -> list[int]:
    def read() -> list[int]:
        return [at for batch in part.rows(EVERYTHING, tolerant) for at in batch.column("position").to_pylist()]

    return await asyncio.wait_for(asyncio.to_thread(read), 20)


def place(node: Node) -> RunningNode:
    return RunningNode("n1", node.address, "c", secret_file=str(node.secret_file))


async def test_readers_go_on_behind_what_was_reclaimed(node: Node) -> None:
    """The server knew where a frame of the first segment stood, and checked that for every later question."""
    await node.read(lambda log: list(log.frames(1, 3)))
    reclaim(node, 1)
    first = (await node.read(lambda log: log.extent())).first
    assert first > 3
    for begin in (END, first):
        assert (await node.read(lambda log, at=begin: list(log.frames(at, END))))[-1].last == END
    assert await asyncio.to_thread(place(node).position, END) is not None


async def test_a_reader_is_never_told_nothing_of_what_is_committed(node: Node) -> None:
    damage_header(node.directory, 10)
    for first in (10, 13):
        with pytest.raises(StoreError, match="is damaged at offset") as told:
            await node.read(lambda log, at=first: list(log.frames(at, END)))
        assert not isinstance(told.value, LogReclaimed)
    assert [each.first for each in await node.read(lambda log: list(log.frames(19, END)))] == [19]
    reclaim(node, 9)
    for ask in (lambda log: log.extent(), lambda log: list(log.frames(1, END))):
        with pytest.raises(StoreError, match="holds nothing: its node begins its log anew") as told:
            await node.read(ask)
        assert not isinstance(told.value, LogReclaimed)


async def test_a_stream_does_not_pass_over_what_is_damaged(node: Node) -> None:
    def batch(reader: StreamReader, start: Any, limit: Any) -> tuple[Any, set[int]]:
        end = reader.latestOffset(start, limit)
        rows = [each for part in reader.partitions(start, end) for each in reader.read(part)]
        return end, {at for each in rows for at in each.column("position").to_pylist()}

    def run() -> None:
        reader = StreamReader(parse_options({"nodes": node.address, "secretFile": str(node.secret_file)}))
        at, found = batch(reader, reader.initialOffset(), ReadMaxRows(9))
        assert found == set(range(1, 10))
        node.server.landmarks._known.clear()  # the node has been started anew
        damage_header(node.directory, 10)
        with pytest.raises(StoreError, match="is damaged at offset"):
            batch(reader, at, ReadAllAvailable())

    await asyncio.to_thread(run)


async def test_what_is_reclaimed_takes_nobody_back(node: Node) -> None:
    """A part begins behind what is gone, and its log is said to begin before it."""
    calls = []
    part = LogRange(place(node), 19, END)
    real = RemoteLog.frames

    class Once(RemoteLog):
        def frames(self, first: int, last: int, start: Mark | None = None) -> Iterator[Frame]:
            calls.append(first)
            for each in real(self, first, last):
                yield each
                if len(calls) == 1:
                    raise LogReclaimed("gone")

    part.place = Doubled(node, Once)
    assert set(await positions(part, tolerant=True)) == {19, 20, 21}
    with pytest.raises(LogReclaimed):
        calls.clear()
        await positions(part)


class Doubled(RunningNode):
    """A running node whose log is read by another class."""

    def __init__(self, node: Node, kind: Callable[[str, str], RemoteLog]) -> None:
        super().__init__("n1", node.address, "c")
        self._kind = kind

    def log(self) -> RemoteLog:
        return self._kind(self.address, self.cluster)


async def test_a_node_that_contradicts_itself_is_not_asked_for_ever(node: Node) -> None:
    class Never(RemoteLog):
        def frames(self, first: int, last: int, start: Mark | None = None) -> Iterator[Frame]:
            raise LogReclaimed("gone, it says")

    for first in (1, 19):
        with pytest.raises(LogReclaimed, match="gone, it says"):
            await positions(LogRange(Doubled(node, Never), first, END), tolerant=True)


async def test_what_is_reclaimed_while_a_beginning_is_looked_for(tmp_path: Path, unused_tcp_port: int) -> None:
    """Retention comes between the question how far the log goes and the one for what stands behind."""
    tx = (1 << 40) + 5
    story: list[list[Event]] = [[Publish(each, (1,), message(f"b{each}"))] for each in range(1, 11)]
    story[3], story[8] = [TxOpen(tx)], [TxEnqueue(tx, 9, (1,), message("in"))]
    write_node(tmp_path / "n1", story, segment_bytes=180)
    node = Node(tmp_path / "n1", unused_tcp_port)
    node.commit = 10
    await node.links.start("127.0.0.1", unused_tcp_port)

    class Late(RemoteLog):
        def extent(self) -> Any:
            found = super().extent()
            if found.first == 1:
                reclaim(node, 3)
            return found

    try:
        assert set(await positions(LogRange(Doubled(node, Late), 8, 10), tolerant=True)) == {8, 9, 10}
        assert segment_firsts(node.directory / "log")[0] > 4
        whole = await node.read(lambda log: [each.first for each in log.backwards(11)])
        assert whole == [10, 9, 8, 7]
    finally:
        node.server.stop()
        await node.links.stop()


async def test_a_part_that_ends_before_its_last_event_is_said(node: Node) -> None:
    """The node has been started anew and does not know yet what has passed the commit point; or its log was cut."""
    part = LogRange(place(node), 10, END)
    node.commit = 15
    with pytest.raises(LogCut, match="ended at 15 and not at 21"):
        await positions(part)
    with pytest.raises(StoreError, match="did not give event 17"):
        await node.read(lambda log: list(log.backwards(18)))
    there = LogRange(Directory("n1", str(node.directory)), 10, END)
    path = segment_path(node.directory / "log", 19)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(LogCut, match="ended at 18 and not at 21"):
        await positions(there)


def test_what_a_crash_cut_short_is_not_to_be_read(tmp_path: Path) -> None:
    """Of the last group only headers reached the disk: a batch reads up to there, and misses nothing."""
    directory = tmp_path / "n1"
    write_node(directory, STORY)
    path = segment_path(directory / "log", 1)
    whole = path.read_bytes()
    group = [encode_frame(1, END + at, [Publish(1, (1,), message("m"))], 0).data for at in (1, 2)]
    header = encode_group_header(len(whole), group)
    path.write_bytes(whole + header + b"".join(each[:60] + bytes(len(each) - 60) for each in group))
    there = Directory("n1", str(directory))
    tail = NodeLog(directory).tail()
    assert tail is not None and tail.last == END + 2, "by the headers alone"
    assert there.extent("log").last == END
    parts = log_ranges(there, 1, there.extent("log").last, 1 << 20, EVERYTHING)
    rows = [row for part in parts if isinstance(part, LogRange) for each in part.rows(EVERYTHING) for row in each]
    assert rows
    path.write_bytes(whole[:-3])
    assert there.extent("log").last == END - 3


def test_a_stream_that_may_lose_events_reads_what_is_there(tmp_path: Path) -> None:
    directory = tmp_path / "n1"
    write_node(directory, STORY)
    apply_up_to(directory, END)
    stream = StreamReader(parse_options({"path": str(directory), "failOnDataLoss": "false"}))
    start, end = ({"n1": {"cluster": "c", "position": at}} for at in ("1.9", f"1.{END + 7}"))
    rows = [each for part in stream.partitions(start, end) for each in stream.read(part)]
    assert {at for each in rows for at in each.column("position").to_pylist()} == set(range(10, END + 1))


def by_address(node: Node, **options: str) -> StreamReader:
    return StreamReader(parse_options({"nodes": node.address, "cluster": "c", **options}))


def batch_of(stream: StreamReader, start: Any, end: Any) -> list[int]:
    rows = [each for part in stream.partitions(start, end) for each in stream.read(part)]
    return sorted({at for each in rows for at in each.column("position").to_pylist()})


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("fail", ["true", "false"])
async def test_what_a_restarted_node_does_not_know_yet_is_not_lost(
    node: Node, fail: str, tells: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes by its last checkpoint until its primary speaks, and its log has what was begun to be read.

    A node of an earlier version does not tell where its log ends: nothing of it is called lost.
    """
    if not tells:
        extent = LogReaderProtocol._extent
        monkeypatch.setattr(LogReaderProtocol, "_extent", lambda *asked: replace(extent(*asked), tail=None))

    def run() -> None:
        first = by_address(node, failOnDataLoss=fail)
        start = first.initialOffset()
        end = first.latestOffset(start, ReadAllAvailable())
        node.commit = 15  # the node is started again, and the query
        again = by_address(node, failOnDataLoss=fail)
        with pytest.raises(StoreError, match=rf"knows only up to 15 .* before {END}, .* ask again"):
            batch_of(again, start, end)
        assert "failOnDataLoss" not in caplog.text
        node.commit = END
        assert batch_of(by_address(node, failOnDataLoss=fail), start, end) == list(range(1, END + 1))

    await asyncio.to_thread(run)


async def test_what_a_running_node_has_lost_is_said(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Its log ends before what was begun to be read: the cluster has given that up."""

    def run() -> None:
        start = by_address(node).initialOffset()
        end = by_address(node).latestOffset(start, ReadAllAvailable())
        for path in sorted((node.directory / "log").iterdir())[-1:]:
            path.unlink()
        node.commit = 17
        for fail in ("true", "false"):
            with pytest.raises(StoreError, match="knows only up to 17"):
                batch_of(by_address(node, failOnDataLoss=fail), start, end)
        node.commit = 18
        with pytest.raises(PipelineError, match=f"the log of node n1 ends at 18, before {END}"):
            batch_of(by_address(node), start, end)
        assert batch_of(by_address(node, failOnDataLoss="false"), start, end) == list(range(1, 19))
        assert f"ends at 18, before {END}" in caplog.text

    await asyncio.to_thread(run)
