"""A listener whose connections are encrypted, and says back what it hears."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from broker_plugin.guard import GuardedProtocol
from broker_plugin.tls.accepting import TlsDoor, TlsRefusals
from broker_plugin.tls.contexts import Asking, Contexts
from broker_plugin.tls.peer_certificate import certificate_of
from tests.support.certificates import Authority
from tests.support.guards import StrictGuard

Scene = Callable[["Listening"], Awaitable[None]]


class Counted:
    """Newcomers, of which ``most`` have room."""

    def __init__(self) -> None:
        self.there: dict[TlsDoor, None] = {}
        self.most = 1000
        self.came = 0

    def arrive(self, door: TlsDoor, transport: asyncio.BaseTransport) -> bool:
        self.came += 1
        self.there[door] = None
        if len(self.there) > self.most:
            oldest = next(iter(self.there))
            del self.there[oldest]
            oldest.abort()
        return True

    def leave(self, door: TlsDoor) -> None:
        self.there.pop(door, None)


class Echo(GuardedProtocol):
    """Says back what it hears, and first whose certificate it has seen."""

    def __init__(self, listening: Listening) -> None:
        self.guard = listening.guard
        self.lost = False
        self._listening = listening

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        found = certificate_of(transport)
        self._listening.names.append(None if found is None else found.common_name)
        self._listening.made.append(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


class Listening:
    def __init__(self, directory: Path, asking: Asking = "ignore") -> None:
        self.authority = Authority(directory / "ours")
        self.stranger = Authority(directory / "theirs")
        self.contexts = Contexts(self.authority.issue("node-1"))
        self.asking: Asking = asking
        self.guard = StrictGuard()
        self.newcomers = Counted()
        self.names: list[str | None] = []
        self.made: list[Echo] = []
        self.refusals = TlsRefusals("clients")

    async def __aenter__(self) -> Listening:
        self.server = await self.guard.create_server(self._door, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.server.close()
        assert not self.guard.errors

    def _door(self) -> TlsDoor:
        context = lambda: self.contexts.clients(self.asking)  # noqa: E731
        return TlsDoor(self.guard, context, lambda: Echo(self), self.newcomers, self.refusals)

    async def connect(self, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost")

    async def echo(self, context: ssl.SSLContext, said: bytes = b"hello") -> bytes:
        reader, writer = await self.connect(context)
        writer.write(said)
        try:
            return await asyncio.wait_for(reader.readexactly(len(said)), 20)
        finally:
            writer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)
