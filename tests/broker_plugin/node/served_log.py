"""A node's log server on loopback, and readers of it: for tests that read a running node by its address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from broker_plugin.node.links import Links, PeerAddress
from broker_plugin.node.log_server import LogServer
from ha.apply.replica import Replica
from ha.feed.feed import Feed
from ha.messages.greeting import WIRE_VERSION, Hello
from recovery.pipeline.remote import RemoteLog
from recovery.reader.log_wire import Answer, decode_answer
from tests.recovery.pipeline.events import STORY, write_node
from tests.support.far_end import CREDENTIALS, SECRET, FarEnd, reading
from tests.support.guards import strict_guard
from txobserver.ids import Position

END = sum(map(len, STORY))
OURS = Hello(WIRE_VERSION, "c", "n1", "127.0.0.1", 1)


class Standing:
    """Of a replica what a feed asks for: what has passed."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def applied(self) -> Position:
        return Position(1, self._node.commit)


class Node:
    """A node's peer port over a log of STORY; ``commit`` is where its commit point stands."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{port}"
        self.port = port
        self.commit = END
        self.secret_file = directory.parent / f"{directory.name}.secret"
        self.secret_file.touch(0o600)
        self.secret_file.write_bytes(SECRET)
        self.feed = Feed(cast(Replica, Standing(self)), 1 << 20)
        self.got: list[Any] = []
        self.server = LogServer(strict_guard(), directory, "c", lambda: self.feed, lambda: {1: "q"})
        self.links = Links(
            strict_guard(),
            OURS,
            CREDENTIALS,
            [PeerAddress("n2", "127.0.0.1", 1)],
            lambda peer, up: None,
            lambda peer, message: self.got.append((peer, message)),
            self.server.accept,
        )

    async def read(self, what: Callable[[RemoteLog], Any], cluster: str | None = None) -> Any:
        """What a reader in a thread of its own gets."""

        def read() -> Any:
            log = RemoteLog(self.address, cluster, secret_file=str(self.secret_file))
            try:
                return what(log)
            finally:
                log.close()

        return await asyncio.to_thread(read)

    async def connect(self, *messages: Any, far: FarEnd | None = None) -> Talk:
        """A reader, unless another far end is given, that proves itself and then says this."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        talk = Talk(await (far or reading()).meet_there(reader, writer), reader, writer)
        talk.say(*messages)
        return talk


class Talk(NamedTuple):
    """A connection to a node, and its far end."""

    far: FarEnd
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, *messages: Any) -> None:
        """Under the seals."""
        self.writer.write(self.far.say(*messages))

    async def answer(self) -> Answer:
        """The next one."""
        return decode_answer(await self.far.answer(self.reader))

    async def ended(self) -> bool:
        """Whether the node ends it, and says no more."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True
        finally:
            self.writer.close()


@pytest.fixture(name="node")
async def running_node(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[Node]:
    """One, in segments of some frames; stopped in the end."""
    write_node(tmp_path / "n1", STORY, segment_bytes=380)
    node = Node(tmp_path / "n1", unused_tcp_port)
    await node.links.start("127.0.0.1", unused_tcp_port)
    yield node
    node.server.stop()
    await node.links.stop()
