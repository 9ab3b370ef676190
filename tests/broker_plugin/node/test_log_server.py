"""Readers of a running node's log: they get what has passed the commit point, and can do nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.logs import seldom
from broker_plugin.node import log_server
from broker_plugin.node.log_server import LogReaderProtocol, LogServer
from broker_plugin.node.peer_protocol import MAX_HELLO, PeerProtocol
from ha.apply.replica import Replica
from ha.effects import Persist
from ha.feed.feed import Feed
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.proof import ListenerProof
from ha.messages.stream import Commit
from recovery.pipeline.node import node_table, rows_of
from recovery.pipeline.remote import RemoteLog
from recovery.reader import landmarks as landmarks_module
from recovery.reader.landmarks import Landmarks
from recovery.reader.log_wire import (
    MAX_PORTION,
    MAX_QUESTION,
    READ_VERSION,
    AskExtent,
    AskFrames,
    LogExtent,
    LogFrames,
    ReadHello,
    decode_answer,
    encode,
)
from recovery.reader.marked_segments import MarkedSegments
from recovery.reader.marks import Mark
from recovery.reader.node_connection import READ_SECRET
from recovery.reader.node_log import NodeLog
from recovery.store.log import LogReclaimed
from recovery.store.segment import segment_path
from tests.broker_plugin.node.served_log import END, OURS, Node, Standing, Talk
from tests.broker_plugin.node.served_log import running_node as running_node
from tests.recovery.pipeline.events import STORY, message, write_node
from tests.support.examples import examples
from tests.support.far_end import SECRET, SECRETS, FarEnd, reading
from tests.support.guards import strict_guard
from txobserver.events import Delivered, Event, Publish
from txobserver.ports.store import MemoryBase, Meta, StoreError

READER = ReadHello(READ_VERSION, "c")
QUESTIONS = st.sampled_from([AskExtent(), AskFrames(1, 9, 1), AskFrames(4, 9, MAX_PORTION), AskFrames(0, 0, 1)])


async def test_a_reader_gets_the_rows_that_the_directory_has(node: Node) -> None:
    wanted = node_table(node.directory).to_pylist()

    def rows(log: RemoteLog, first: int) -> list[Any]:
        return [row for batch in rows_of(log, log.hello.node, first, END) for row in batch.to_pylist()]

    for first in (1, 9, END):
        assert await node.read(lambda log, at=first: rows(log, at)) == [
            row for row in wanted if row["position"] >= first
        ]
    assert await node.read(lambda log: [frame.first for frame in log.backwards(12)]) == [10, 7, 4, 1]


async def test_nothing_behind_the_commit_point(node: Node) -> None:
    for commit in range(END + 1):
        node.commit = commit
        extent = await node.read(lambda log: log.extent())
        assert (extent.first, extent.last, extent.queues) == (1, commit, {1: "q"})
        frames = await node.read(lambda log: list(log.frames(1, END)))
        assert [event for frame in frames for event in frame.events()] == [e for f in STORY for e in f][:commit]


async def test_a_node_tells_where_its_log_ends(node: Node) -> None:
    """Behind the commit point, of which a node that was just started knows less than it knew before."""
    for commit in (END, 12):
        node.commit = commit
        extent = await node.read(lambda log: log.extent())
        assert (extent.last, extent.tail) == (commit, END)
    write_node(node.directory, [[Delivered(1, 1)]])
    assert (await node.read(lambda log: log.extent())).tail == END + 1
    for path in sorted((node.directory / "log").iterdir())[-2:]:
        path.unlink()
    write_node(node.directory, [])
    assert (await node.read(lambda log: log.extent())).tail == NodeLog(node.directory).tail().last < END


async def test_what_is_given_from_memory_is_what_the_disk_gives(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, for any part of the log, wherever the commit point stands; and the disk is left alone."""
    talk = await node.connect(READER)
    on_disk, frames = node.feed, list(NodeLog(node.directory).frames(1, END))
    in_memory = Feed(cast(Replica, Standing(node)), 1 << 20)
    for frame in frames:
        in_memory.changes(Persist(frame))
    asked = [AskFrames(first, last, size) for first in range(1, END + 2) for last in (first, END) for size in (1, 300)]
    for node.commit in (0, 1, 5, 12, END):
        answers = []
        for node.feed in (on_disk, in_memory):
            with monkeypatch.context() as patch:
                if node.feed is in_memory:
                    patch.setattr(LogReaderProtocol, "_frames", lambda *words: pytest.fail("it reads the disk"))
                answers.append([await answer_to(talk, question) for question in asked])
        assert answers[0] == answers[1]
    talk.writer.close()


async def answer_to(talk: Talk, question: Any) -> bytes:
    talk.say(question)
    return await talk.far.answer(talk.reader)


class EarlierExtent(msgspec.Struct, array_like=True, tag=103):
    """What a node says of an earlier version, and what its readers know."""

    first: int
    last: int
    size: int
    queues: dict[int, str]


def test_an_extent_of_an_earlier_version_can_be_read_and_reads_ours() -> None:
    encoded = msgspec.msgpack.encode(EarlierExtent(1, 9, 400, {1: "q"}))
    assert decode_answer(encoded) == LogExtent(1, 9, 400, {1: "q"}, None)
    ours = msgspec.msgpack.encode(LogExtent(1, 9, 400, {1: "q"}, 12))
    assert msgspec.msgpack.decode(ours, type=EarlierExtent) == EarlierExtent(1, 9, 400, {1: "q"})


async def test_an_answer_has_as_many_frames_as_were_asked_for_and_one_at_least(node: Node) -> None:
    """A portion is about as large as the reader has room for, however long the log is."""
    talk = await node.connect(READER)
    there = [len(frame.data) for frame in NodeLog(node.directory).frames(1, END)]
    assert len(set(there)) > 1
    for size in (*accumulate(there), *(each + 1 for each in accumulate(there)), 1, MAX_PORTION):
        talk.say(AskFrames(1, END, size))
        answer = await talk.answer()
        assert isinstance(answer, LogFrames)
        found = [len(data) for data in answer.frames]
        assert sum(found[:-1]) < size and (sum(found) >= size or len(found) == len(STORY))
    talk.writer.close()


async def test_what_the_log_has_lost_is_said(node: Node) -> None:
    for path in sorted((node.directory / "log").iterdir())[:1]:
        path.unlink()
    with pytest.raises(LogReclaimed, match="have been reclaimed"):
        await node.read(lambda log: list(log.frames(1, END)))
    data = bytearray((last := sorted((node.directory / "log").iterdir())[0]).read_bytes())
    data[-3] ^= 1
    last.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged at offset"):
        await node.read(lambda log: list(log.frames(log.extent().first, END)))


async def test_an_extent_is_asked_for_while_the_log_is_reclaimed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments go between the list of them and the look at each: the log begins behind these."""
    firsts = node.server.log.segments.firsts()
    sizes = [segment_path(node.server.log.directory, first).stat().st_size for first in firsts]
    gone = 0

    def reclaimed_meanwhile(segments: MarkedSegments) -> list[int]:
        for first in firsts[:gone]:
            segment_path(segments.directory, first).unlink(missing_ok=True)
        return firsts

    monkeypatch.setattr(MarkedSegments, "firsts", reclaimed_meanwhile)
    for gone in (0, 1, 2):
        extent = await node.read(lambda log: log.extent())
        assert (extent.first, extent.last, extent.size) == (firsts[gone], END, sum(sizes[gone:]))
    gone = len(firsts)
    with pytest.raises(StoreError, match=r"holds nothing: .* ask again"):
        await node.read(lambda log: log.extent())
    firsts, node.commit = [], 0  # and of which no node knows an event
    extent = await node.read(lambda log: log.extent())
    assert (extent.first, extent.last, extent.size) == (1, 0, 0)


async def test_a_log_made_anew_is_found(node: Node) -> None:
    """The place of the last frame served is remembered, and may no longer be one."""
    talk = await node.connect(READER)
    for last in (END, 3):
        talk.say(AskFrames(last, last, 1))
        answer = await talk.answer()
        assert isinstance(answer, LogFrames) and len(answer.frames) == 1
        for path in (node.directory / "log").iterdir():
            path.unlink()
        write_node(node.directory, STORY, segment_bytes=1 << 20)
    talk.writer.close()


def test_a_search_begins_near_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each small part of a log is looked for by itself, and not from the beginning of its segment."""
    events = [[Publish(each, (1,), message("some body"))] for each in range(1000)]
    write_node(tmp_path, events)
    looked, marks = [], MarkedSegments.marks

    def counted(segments: MarkedSegments, segment: int, offset: int = 0) -> Iterator[Mark]:
        for mark in marks(segments, segment, offset):
            looked.append(mark)
            yield mark

    monkeypatch.setattr(MarkedSegments, "marks", counted)
    monkeypatch.setattr(landmarks_module, "APART", 1000)
    landmarks, log = Landmarks(), NodeLog(tmp_path)
    for sequence in (*range(1, 1000, 20), *range(999, 0, -20)):
        found = landmarks.find(log, sequence)
        assert found is not None and found.first == sequence
    assert len(looked) < 4000, "and not 50,000"


def test_a_landmark_of_a_log_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a frame was, another one stands, which holds other events."""
    monkeypatch.setattr(landmarks_module, "APART", 0)
    landmarks, log = Landmarks(), NodeLog(tmp_path)
    before: list[list[Event]] = [[Publish(1, (1,), message("some padding"))], [Delivered(1, 1)], [Delivered(1, 2)]]
    after: list[list[Event]] = [[Publish(1, (1,), message("no padding")), Delivered(1, 1)], [Delivered(1, 1)]]
    write_node(tmp_path, before)
    second = landmarks.find(log, 2)
    assert second is not None and second.first == 2
    (tmp_path / "log" / f"{1:020}.log").unlink()
    write_node(tmp_path, after)
    moved = log.find(3)
    assert moved is not None and moved.offset == second.offset, "the test is about frames of one length"
    assert landmarks.find(log, 2) == log.find(2) != second


async def test_another_cluster_is_refused_on_both_sides(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seldom, "QUIET_SECONDS", 0)
    with pytest.raises(StoreError, match="belongs to cluster c, not to another"):
        await node.read(lambda log: log.extent(), "another")
    for greeting, reason in (
        (ReadHello(READ_VERSION, "another"), "it reads cluster another, not c"),
        (ReadHello(READ_VERSION + 1, "c"), "it reads with version"),
    ):
        talk = await node.connect(greeting)
        assert await talk.ended()
        assert reason in caplog.text


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ((AskExtent(), AskExtent()), "asks before it is answered"),
        ((bytes(MAX_QUESTION + 1),), f"a message of {MAX_QUESTION + 1} bytes"),
        ((AskFrames(1, 2, MAX_PORTION + 1),), "Expected `int` <="),
        ((Commit(1, 1, 1),), "Invalid value"),
        ((OURS,), "Invalid value"),
        ((b"\xc1",), "malformed"),
        ((b"\x91" * MAX_QUESTION,), "Expected `int`, got `array`"),
    ],
)
async def test_whatever_else_a_reader_says_is_refused(
    node: Node, said: tuple[Any, ...], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    talk = await node.connect(READER, *said)
    assert await talk.ended()
    assert reason in caplog.text and not node.got and not node.server.readers
    assert (await node.read(lambda log: log.extent())).last == END


async def test_readers_are_not_many_and_not_silent(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_server, "MAX_READERS", 2)
    talks = [await node.connect(READER, AskExtent()) for _ in range(2)]
    for talk in talks:
        assert isinstance(await talk.answer(), LogExtent)
    with pytest.raises(StoreError, match="does not answer"):
        await node.read(lambda log: log.extent())
    monkeypatch.setattr(log_server, "SILENCE_SECONDS", 0.01)
    for talk in talks:
        talk.say(AskExtent())
        with suppress(asyncio.IncompleteReadError, ConnectionResetError):  # the deadline may pass before the answer
            await talk.answer()
        assert await talk.ended()
    assert not node.server.readers


async def test_peers_go_on_beside_readers(node: Node) -> None:
    reading = await node.connect(READER)
    talk = await node.connect(Hello(WIRE_VERSION, "c", "n2", "", 0), Commit(1, 1, 1), far=FarEnd())
    await node.read(lambda log: list(log.frames(1, END)))
    while not node.got:
        await asyncio.sleep(0.005)
    assert node.got == [("n2", Commit(1, 1, 1))]
    talk.writer.close()
    await node.links.stop()
    node.server.stop()
    assert await reading.ended()


async def test_a_node_that_is_not_there(unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(READ_SECRET, SECRET.decode())
    for address in (f"127.0.0.1:{unused_tcp_port}", "127.0.0.1:port", "nonsense"):
        with pytest.raises(StoreError, match="cannot be reached"):
            RemoteLog(address).extent()


class Transport:
    """Of a connection that no reader is behind."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self.ended = False
        self.written = b""

    get_extra_info = dict[str, Any]().get

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        assert not self.ended
        self.written += data

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing: what is written has left at once."""

    def abort(self) -> None:
        self.ended = True


async def test_the_end_of_a_node_is_that_of_its_readers(node: Node) -> None:
    """Also of one whose greeting is on its way."""
    there = await node.connect(READER)
    while not node.server.readers:
        await asyncio.sleep(0)
    coming = await node.connect(READER)
    (here,) = node.server.readers
    node.server.stop()
    assert here._deadline is not None and here._deadline.cancelled()
    for talk in (there, coming):
        assert await talk.ended() and not node.server.readers
    with pytest.raises(RuntimeError):
        node.server.thread.submit(int)


@pytest.mark.fuzz
@examples(300)
@given(
    st.sampled_from([(), (READER,)]),
    st.lists(st.binary(max_size=200) | QUESTIONS, max_size=2),
    st.integers(-1, 4000),
    st.lists(st.integers(0, 400)),
)
def test_any_bytes_in_any_pieces(before: tuple[Any, ...], data: list[Any], bit: int, cuts: list[int]) -> None:
    """Nothing fails, nothing comes through to the node, and next to nothing is kept: sealed, or with a flipped bit."""
    nothing = Feed(Replica(MemoryBase(), Meta(), {}), 0)

    async def feed() -> None:
        server = LogServer(strict_guard(), Path("nowhere"), "c", lambda: nothing, dict)
        transport = Transport()
        fail: Any = lambda *message: pytest.fail(f"{message} came through")  # noqa: E731
        proof = ListenerProof(SECRETS, bytes(32))
        protocol = PeerProtocol(strict_guard(), OURS, proof, ["n2"], fail, fail, lambda lost: None, server.accept)
        protocol.connection_made(transport)  # type: ignore[arg-type]
        far = reading().meet(protocol, transport)
        stream = bytearray(far.say(*before, *(each if isinstance(each, bytes) else encode(each) for each in data)))
        if bit >= 0 and stream:
            stream[bit // 8 % len(stream)] ^= 1 << bit % 8
        edges = [0, *sorted(each % (len(stream) + 1) for each in cuts), len(stream)]
        for a, b in pairwise(edges):
            current = transport.protocol or protocol
            current.data_received(bytes(stream[a:b]))
            kept = len((transport.protocol or protocol)._buffer)
            assert kept <= (MAX_QUESTION if transport.protocol else MAX_HELLO) + 24 + (b - a)
        server.stop()

    asyncio.run(feed())
