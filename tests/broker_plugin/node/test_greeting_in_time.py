"""Connections between nodes on which the other end never greets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_plugin.node import links as links_module
from broker_plugin.node.links import Links, PeerAddress
from tests.broker_plugin.node.test_links import OURS, TAKEN, THEIRS, Dialling, Transport, nothing
from tests.support.far_end import CREDENTIALS, FarEnd, listening
from tests.support.guards import StrictGuard


@pytest.mark.parametrize("greets", [True, False])
async def test_who_connects_must_greet_in_time(greets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[float, Any]] = []
    ours = Dialling(monkeypatch, TAKEN)
    await ours.until_the_last()
    monkeypatch.setattr(ours.network, "call_later", lambda seconds, call: waited.append((seconds, call)))
    came: Any = Transport(ours.network.factory())
    came.protocol.connection_made(came)
    if greets:
        came.protocol.data_received(FarEnd().meet(came.protocol, came).say(THEIRS))
    ((seconds, late),) = waited
    assert seconds == links_module.GREETING_SECONDS and not came.aborted
    late()
    assert came.aborted != greets
    await ours.links.stop()


class Hanging(StrictGuard):
    """The first dials are swallowed: nothing takes them, and nothing refuses them."""

    def __init__(self, swallowed: int) -> None:
        super().__init__()
        self.swallowed = swallowed

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int) -> asyncio.Transport:
        if self.swallowed:
            self.swallowed -= 1
            await asyncio.Event().wait()
        return await super().create_connection(factory, host, port)


@pytest.mark.parametrize(("swallowed", "silent"), [(0, 2), (2, 0), (1, 1)])
async def test_dialled_and_never_greeted(swallowed: int, silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``dialled_and_never_greeted``: a peer that was stopped, or its host, is linked as soon as it goes on."""
    monkeypatch.setattr(links_module, "LINKING_SECONDS", 0.2)
    came: list[asyncio.Transport] = []
    ended: list[bool] = []
    linked = asyncio.Event()

    class Peer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            came.append(transport)
            self.far, self.transport = listening(), transport
            if len(came) > silent:
                transport.write(self.far.opening())

        def data_received(self, data: bytes) -> None:
            known = self.far.session is not None
            self.transport.write(self.far.take(data))
            if not known and self.far.session is not None:
                self.transport.write(self.far.say(THEIRS))

        def connection_lost(self, error: Exception | None) -> None:
            ended.append(True)

    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    links = Links(
        Hanging(swallowed),
        OURS,
        CREDENTIALS,
        [PeerAddress("b", "127.0.0.1", port)],
        lambda peer, up: linked.set(),
        nothing,
    )
    await links.start("127.0.0.1", 0)
    async with asyncio.timeout(30):
        await linked.wait()
        while len(ended) < len(came) - 1:  # none of the silent ones is left standing
            await asyncio.sleep(0.01)
    dialled = len(came)
    await asyncio.sleep(2 * links_module.LINKING_SECONDS)
    assert len(came) == dialled > silent and links.greetings["b"] == THEIRS, "one that has greeted has no deadline"
    await links.stop()
    server.close()
