"""The front door of a backup: a client whose connection is passed on while the primary dies is kept waiting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

import pytest

from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.node import proxy
from broker_plugin.node.descriptors import Room
from broker_plugin.node.passing import PassOn, Refuse, Serve, Verdict
from broker_plugin.node.proxy import FrontDoor
from tests.support.arrivals import arrivals
from tests.support.guards import strict_guard

LOOPBACK = "127.0.0.1"
ENOUGH = 1 << 20
"""Descriptors"""


class Doorway:
    """A front door that listens, and what its node knows of the primary."""

    def __init__(self) -> None:
        self.verdict: Verdict = None
        self.doors: set[FrontDoor] = set()
        self.arrivals = arrivals()
        self._servers: list[asyncio.Server] = []
        self._port = 0

    async def start(self) -> Doorway:
        room = Room(ENOUGH, "clients")
        make = partial(FrontDoor, strict_guard(), lambda: self.verdict, self.doors, room, Logins({}), self.arrivals)
        self._port = await self._listen(make)
        return self

    async def primary(self, factory: Callable[[], asyncio.Protocol], generation: int = 1) -> PassOn:
        """A primary that treats its clients so."""
        return PassOn(LOOPBACK, await self._listen(factory), generation)

    def look(self, generation: int) -> None:
        """Something has changed; the record has this generation."""
        for door in list(self.doors):
            door.look(generation)

    async def empty(self) -> None:
        """Until no door is left that wants to be told of changes."""
        while self.doors:
            await asyncio.sleep(0.01)

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
        writer.close()
        await doorway.empty()


async def test_a_client_is_kept_waiting_until_the_primary_s_first_word(doorway: Doorway) -> None:
    """A primary that was dialled may be dead; patience ends with its first word, and not the connection."""
    desk = Desk()
    doorway.verdict = await doorway.primary(desk)
    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        primary = await desk.heard(b"hello")
        (door,) = doorway.doors
        assert door._deadline is not None
        primary.transport.write(b"word")
        assert await reader.readexactly(4) == b"word"
    assert door._deadline is None
    writer.close()


async def test_patience_ends_with_a_primary_that_says_nothing(
    doorway: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "DEADLINE_SECONDS", 0.2)
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
        await doorway.empty()


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
    writer.write(b"hello")
    async with asyncio.timeout(10):
        while not any(door._held for door in doorway.doors):
            await asyncio.sleep(0.01)
        (door,) = doorway.doors
        monkeypatch.setattr(loop, "create_connection", slow)
        doorway.verdict = target
        door.reconsider()
        door.reconsider()
        await dialled.wait()
        writer.close()
        await doorway.empty()
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
    assert primary.heard == b"one two three "
    writer.close()


async def test_a_client_is_refused_at_once_where_it_is_to_be(doorway: Doorway) -> None:
    doorway.verdict = Refuse()
    reader, writer = await doorway.client()
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def passed_on(doorway: Doorway, desk: Desk) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Greeting]:
    """A client that the primary of generation 1 serves, by way of this node, and that primary's end of it."""
    doorway.verdict = await doorway.primary(desk)
    reader, writer = await doorway.client()
    writer.write(b"hello")
    primary = await desk.heard(b"hello")
    primary.transport.write(b"word")
    assert await reader.readexactly(4) == b"word"
    return reader, writer, primary


@pytest.mark.parametrize("known", [True, False], ids=["the_next_one_is_known", "the_next_one_is_not_known_yet"])
async def test_passed_on_to_a_stopped_primary(doorway: Doorway, known: bool) -> None:
    """``passed_on_to_a_stopped_primary``: it serves no client any more, and never says so."""
    desk, other = Desk(), Desk()
    async with asyncio.timeout(10):
        reader, writer, primary = await passed_on(doorway, desk)
        doorway.verdict = await doorway.primary(other, 2) if known else None
        doorway.look(2)
        assert await reader.read() == b"", "what it had begun is gone: it must not go on with another primary"
        await primary.gone.wait()
        await doorway.empty()
    assert len(desk.served) == 1 and not other.served
    writer.close()


async def test_a_connection_that_is_passed_on_outlasts_all_but_another_generation(doorway: Doorway) -> None:
    """A backup that loses its own link to the primary knows nothing against it."""
    async with asyncio.timeout(10):
        reader, writer, primary = await passed_on(doorway, Desk())
        for verdict in (None, doorway.verdict):
            doorway.verdict = verdict
            doorway.look(1)
            primary.transport.write(b"more")
            assert await reader.readexactly(4) == b"more"
    writer.close()


async def test_a_client_that_a_stopped_primary_never_answered_goes_to_the_next(doorway: Doorway) -> None:
    """With all that it has sent; what the stopped one says when it goes on is not passed on."""
    desk = Desk()
    doorway.verdict = await doorway.primary(desk)
    reader, writer = await doorway.client()
    writer.write(b"hel")
    async with asyncio.timeout(10):
        stopped = await desk.heard(b"hel")
        writer.write(b"lo")
        await desk.heard(b"hello")
        doorway.verdict = None
        doorway.look(2)
        stopped.transport.write(b"late")
        await stopped.gone.wait()
        doorway.verdict = await doorway.primary(Echo, 2)
        doorway.look(2)
        assert await reader.readexactly(11) == b"heard hello"
    writer.close()


async def test_the_end_of_a_former_primary_s_connection_ends_no_other(doorway: Doorway) -> None:
    """The next one is being dialled when it comes."""
    desk, other = Desk(), Desk()
    doorway.verdict = await doorway.primary(desk)
    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        stopped = await desk.heard(b"hello")
        doorway.verdict = await doorway.primary(other, 2)
        doorway.look(2)
        await stopped.gone.wait()
        serving = await other.heard(b"hello")
        serving.transport.write(b"word")
        assert await reader.readexactly(4) == b"word"
    assert len(other.served) == 1
    writer.close()


async def test_a_primary_that_cannot_be_reached_is_given_up_for_the_next(
    doorway: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host does not even refuse the connection."""
    loop = asyncio.get_running_loop()
    sock_connect, dialled, given_up = loop.sock_connect, asyncio.Event(), asyncio.Event()
    nowhere = PassOn(LOOPBACK, 1, 1)

    async def connect(made: socket.socket, address: tuple[str, int]) -> None:
        if address[1] == nowhere.port:
            dialled.set()
            try:
                await asyncio.Event().wait()
            finally:
                given_up.set()
        await sock_connect(made, address)

    reader, writer = await doorway.client()
    writer.write(b"hello")
    async with asyncio.timeout(10):
        monkeypatch.setattr(loop, "sock_connect", connect)
        while not doorway.doors:
            await asyncio.sleep(0.01)
        doorway.verdict = nowhere
        doorway.look(1)
        await dialled.wait()
        doorway.verdict = await doorway.primary(Echo, 2)
        doorway.look(2)
        assert await reader.readexactly(11) == b"heard hello"
        await given_up.wait()
    writer.close()
