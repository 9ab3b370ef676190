"""Readers of a running node's log that do not take what they asked for: one answer waits for each, and no more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from recovery.reader.log_wire import MAX_PORTION, AskFrames, LogFrames, decode_answer, encode
from tests.broker_plugin.node.test_log_server import READER, Node
from tests.recovery.pipeline.events import write_node
from tests.support.far_end import FarEnd, reading
from txobserver.events import Event, Message, Publish

FRAMES = 4
ASKED = encode(AskFrames(1, FRAMES, MAX_PORTION))
BOTH_ENDS = 1 << 14
"""Bytes that the system keeps of an answer, about; the answer has megabytes."""
RUNNERS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,  # the node's
}
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Run:
    """In a loop of each kind: it is the loop that tells a protocol what waits to leave."""

    def in_time(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=RUNNERS[request.param]) as runner:
            runner.run(asyncio.wait_for(test, 30))

    return in_time


class Asking:
    """A node, a reader's socket, which the node has greeted, and the node's end of it."""

    def __init__(self, node: Node, reader: socket.socket, far: FarEnd) -> None:
        self.node = node
        self.reader = reader
        self.far = far
        (ours,) = node.server.readers
        self.transport: Any = ours._transport
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BOTH_ENDS)

    async def ask(self) -> int:
        """For more than both ends' sockets take. Returns how many bytes of the answer wait in the node then."""
        await self.say()
        while not (size := int(self.transport.get_write_buffer_size())):
            await asyncio.sleep(0.005)
        return size

    async def say(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self.reader, self.far.say(ASKED))


@asynccontextmanager
async def asking(directory: Path, port: int) -> AsyncIterator[Asking]:
    body = b"x" * (1 << 20)
    events: list[list[Event]] = [[Publish(each, (1,), Message("", "q", b"", body))] for each in range(1, FRAMES + 1)]
    write_node(directory, events)
    node, loop = Node(directory, port), asyncio.get_running_loop()
    node.commit = FRAMES
    await node.links.start("127.0.0.1", port)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BOTH_ENDS)
        reader.setblocking(False)
        await loop.sock_connect(reader, ("127.0.0.1", port))
        far = reading()
        while not far.got:
            await loop.sock_sendall(reader, far.take(await loop.sock_recv(reader, 1 << 16)))
        await loop.sock_sendall(reader, far.say(encode(READER)))
        while not node.server.readers:
            await asyncio.sleep(0.005)
        yield Asking(node, reader, far)
    node.server.stop()
    await node.links.stop()


async def taken(it: Asking) -> bytes:
    """One message, read to its end; nothing comes behind it before the next question."""
    there = len(it.far.got)
    while len(it.far.got) == there:
        it.far.take(await asyncio.get_running_loop().sock_recv(it.reader, 1 << 16))
    return it.far.got.pop()


def test_a_reader_that_asks_on_and_reads_nothing(
    tmp_path: Path, unused_tcp_port: int, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Each question was answered into the node's memory, and gave the reader another minute."""

    async def test() -> None:
        async with asking(tmp_path, unused_tcp_port) as it:
            size = await it.ask()
            await it.say()
            while it.node.server.readers:
                assert it.transport.get_write_buffer_size() <= size, "a second answer waits behind the first"
                await asyncio.sleep(0.005)

    run(test())
    assert "it asks before it is answered" in caplog.text


def test_a_reader_that_takes_its_answers_late_may_ask_on(tmp_path: Path, unused_tcp_port: int, run: Run) -> None:
    async def test() -> None:
        async with asking(tmp_path, unused_tcp_port) as it:
            for _ in range(3):
                await it.ask()
                answer = decode_answer(await taken(it))
                assert isinstance(answer, LogFrames) and len(answer.frames) == FRAMES
            assert it.node.server.readers

    run(test())


def test_patience_with_a_reader_goes_on_while_its_answer_waits(
    tmp_path: Path, unused_tcp_port: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with the question, and no part of the answer that is taken begins it anew."""

    async def test() -> None:
        async with asking(tmp_path, unused_tcp_port) as it:
            patience: list[Callable[[], None]] = []

            def later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
                patience.append(call)
                return asyncio.get_running_loop().call_later(seconds, lambda: None)

            monkeypatch.setattr(it.node.server.guard, "call_later", later)
            await it.ask()
            await asyncio.get_running_loop().sock_recv(it.reader, 1 << 16)
            (call,) = patience
            call()
            assert not it.node.server.readers and it.transport.is_closing()

    run(test())
