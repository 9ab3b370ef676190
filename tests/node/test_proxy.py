"""The front door of a backup: a client whose connection is passed on while the primary dies is kept waiting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from broker_plugin.node import proxy
from broker_plugin.node.descriptors import Room
from broker_plugin.node.proxy import FrontDoor, PassOn, PrimarySide, Refuse, Serve, Verdict
from tests.guards import strict_guard

LOOPBACK = "127.0.0.1"
ENOUGH = 1 << 20
"""Descriptors"""


class Doorway:
    """A front door that listens, and what its node knows of the primary."""

    def __init__(self) -> None:
        self.verdict: Verdict = None
        self.waiting: set[FrontDoor] = set()
        self._servers: list[asyncio.Server] = []
        self._port = 0

    async def start(self) -> Doorway:
        room = Room(ENOUGH, "clients")
        self._port = await self._listen(lambda: FrontDoor(strict_guard(), lambda: self.verdict, self.waiting, room))
        return self

    async def primary(self, factory: Callable[[], asyncio.Protocol]) -> PassOn:
        """A primary that treats its clients so."""
        return PassOn(LOOPBACK, await self._listen(factory))

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(LOOPBACK, self._port)

    async def _listen(self, factory: Callable[[], asyncio.Protocol]) -> int:
        server = await asyncio.get_running_loop().create_server(factory, LOOPBACK, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        for server in self._servers:
            server.close()


class Echo(asyncio.Protocol):
    """A primary that is alive."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(b"heard " + data)


class Dying(asyncio.Protocol):
    """A primary that was killed with this client in the backlog of its socket: connected, and never served."""

    seen = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Dying.seen += 1
        transport.close()


@pytest.fixture
async def doorway() -> AsyncIterator[Doorway]:
    doorway = await Doorway().start()
    yield doorway
    doorway.close()


async def test_a_primary_that_dies_before_its_first_word_looks_like_a_slow_connection(doorway: Doorway) -> None:
    Dying.seen = 0
    doorway.verdict = await doorway.primary(Dying)
    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        while not Dying.seen:
            await asyncio.sleep(0.01)
        doorway.verdict = await doorway.primary(Echo)
        assert await reader.readexactly(11) == b"heard hello"
    assert not doorway.waiting
    writer.close()


async def test_a_client_is_kept_waiting_until_the_primary_s_first_word(doorway: Doorway) -> None:
    """Whoever waits is told of a new primary, and of nothing else: a primary that was dialled may be dead."""
    desk = Desk()
    doorway.verdict = await doorway.primary(desk)
    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        primary = await desk.heard(b"hello")
        (door,) = doorway.waiting
        primary.transport.write(b"word")
        assert await reader.readexactly(4) == b"word"
    assert door not in doorway.waiting
    writer.close()


async def test_patience_ends_with_a_primary_that_says_nothing(
    doorway: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "PATIENCE", 0.2)
    doorway.verdict = await doorway.primary(Desk())
    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_a_node_that_becomes_primary_serves_whom_it_could_not_pass_on(doorway: Doorway) -> None:
    Dying.seen = 0
    doorway.verdict = await doorway.primary(Dying)
    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        while not Dying.seen:
            await asyncio.sleep(0.01)
        doorway.verdict = Serve(Echo)
        assert await reader.readexactly(11) == b"heard hello"
    writer.close()


async def test_a_client_that_was_answered_loses_its_connection_with_the_primary(doorway: Doorway) -> None:
    """What it had begun is gone with the primary: it must not go on with another one."""
    served: list[Echo] = []

    def serve() -> Echo:
        served.append(Echo())
        return served[-1]

    doorway.verdict = await doorway.primary(serve)
    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        assert await reader.readexactly(11) == b"heard hello"
        served[0].transport.close()
        assert await reader.read() == b""
    assert len(served) == 1
    writer.close()


class Greeting(asyncio.Protocol):
    """A primary that counts its clients and what they say, and answers when the test says so."""

    def __init__(self) -> None:
        self.heard = b""
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()


class Desk:
    """A primary's end, for as many clients as come."""

    def __init__(self) -> None:
        self.served: list[Greeting] = []

    def __call__(self) -> Greeting:
        self.served.append(Greeting())
        return self.served[-1]

    async def heard(self, said: bytes) -> Greeting:
        while not self.served or self.served[-1].heard != said:
            await asyncio.sleep(0.01)
        return self.served[-1]


async def test_a_client_that_leaves_takes_its_connection_with_the_primary_along(doorway: Doorway) -> None:
    desk = Desk()
    doorway.verdict = await doorway.primary(desk)
    _, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        primary = await desk.heard(b"hello")
        writer.close()
        await primary.gone.wait()
        while doorway.waiting:
            await asyncio.sleep(0.01)


async def test_a_client_that_leaves_while_the_primary_is_dialled_leaves_nothing(
    doorway: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, hold, dialled = Desk(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    create_connection = loop.create_connection

    async def slow(factory: Callable[[], asyncio.Protocol], sock: socket.socket) -> object:
        made = await create_connection(factory, sock=sock)
        dialled.set()
        await hold.wait()
        return made

    target = await doorway.primary(desk)
    _, writer = await doorway.client()
    async with asyncio.timeout(10):
        while not doorway.waiting:
            await asyncio.sleep(0.01)
        (door,) = doorway.waiting
        monkeypatch.setattr(loop, "create_connection", slow)
        doorway.verdict = target
        door.reconsider()
        door.reconsider()
        await dialled.wait()
        writer.close()
        while doorway.waiting:
            await asyncio.sleep(0.01)
        hold.set()
        while not desk.served:
            await asyncio.sleep(0.01)
        await desk.served[0].gone.wait()
    assert len(desk.served) == 1 and desk.served[0].heard == b""


async def test_everything_is_passed_on_both_ways_and_once(doorway: Doorway) -> None:
    desk = Desk()
    doorway.verdict = await doorway.primary(desk)
    reader, writer = await doorway.client()
    writer.write(b"one ")
    async with asyncio.timeout(10):
        primary = await desk.heard(b"one ")
        primary.transport.write(b"answer ")
        assert await reader.readexactly(7) == b"answer "
        for word in (b"two ", b"three "):
            writer.write(word)
            while not primary.heard.endswith(word):
                await asyncio.sleep(0.01)
        primary.transport.write(b"end")
        assert await reader.readexactly(3) == b"end"
    assert primary.heard == b"one two three " and not doorway.waiting
    writer.close()


async def test_a_client_is_refused_at_once_where_it_is_to_be(doorway: Doorway) -> None:
    doorway.verdict = Refuse()
    reader, writer = await doorway.client()
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


class Slow:
    """A transport that notes whether it is read."""

    def __init__(self) -> None:
        self.reads = True
        self.closed = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        """Nothing."""

    def close(self) -> None:
        self.closed = True


def passing() -> tuple[FrontDoor, Slow, Slow]:
    """A door between a client and a primary."""
    door: Any = FrontDoor(strict_guard(), lambda: None, set(), Room(ENOUGH, "clients"))
    client, primary = Slow(), Slow()
    door._transport, door._other = client, primary
    return door, client, primary


def test_who_reads_slowly_slows_the_other_side() -> None:
    door, client, primary = passing()
    door.pause_writing()
    assert client.reads and not primary.reads
    door.resume_writing()
    assert primary.reads
    side = PrimarySide(door)
    side.pause_writing()
    assert primary.reads and not client.reads
    side.resume_writing()
    assert client.reads


def test_a_primary_that_ends_behind_its_client_has_nobody_to_tell() -> None:
    door, client, _ = passing()
    door._transport = None
    door.primary_lost()
    assert door._other is None and not client.closed


def test_what_is_held_for_a_primary_that_is_silent_is_bounded() -> None:
    door, client, _ = passing()
    door.data_received(bytes(1 << 20))
    assert client.reads
    door.data_received(b"x")
    assert not client.reads
    door.from_primary(b"answer")
    assert client.reads
    door.data_received(b"more")
    assert client.reads
