"""The front door of a backup: a client whose connection is passed on while the primary dies is kept waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from broker_plugin.node.proxy import FrontDoor, PassOn, Serve, Verdict
from tests.guards import strict_guard

LOOPBACK = "127.0.0.1"


class Doorway:
    """A front door that listens, and what its node knows of the primary."""

    def __init__(self) -> None:
        self.verdict: Verdict = None
        self.waiting: set[FrontDoor] = set()
        self._servers: list[asyncio.Server] = []
        self._port = 0

    async def start(self) -> Doorway:
        self._port = await self._listen(lambda: FrontDoor(strict_guard(), lambda: self.verdict, self.waiting))
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
