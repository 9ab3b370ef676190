"""The front door tells the primary where the client comes from that it passes on, and believes other nodes' doors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from pamqp import commands, frame

from broker_plugin.amqp.arrivals import Arrivals
from broker_plugin.amqp.loop_broker import embedded_broker
from broker_plugin.amqp.protocol.introductions import (
    ASK,
    Introduced,
    Introducer,
    Introduction,
    Introductions,
    introduction_key,
)
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.server import AmqpServer, AmqpSettings
from broker_plugin.node import proxy
from broker_plugin.node.descriptors import Room
from broker_plugin.node.passing import PassOn, Serve, Verdict
from broker_plugin.node.proxy import FrontDoor
from tests.broker_plugin.amqp.peer import HEADER
from tests.support.arrivals import arrivals
from tests.support.guards import strict_guard

pytestmark = pytest.mark.timeout(30)
LOOPBACK = "127.0.0.1"
KEY = introduction_key(b"secret", "c")
NONCE = b"0" * 32


class Node:
    """One node's front door, and those who have come to it."""

    def __init__(self, name: str, logins: Logins | None = None) -> None:
        self.name = name
        self.verdict: Verdict = None
        self.port = 0
        self.doors: set[FrontDoor] = set()
        self.logins = logins or Logins({})
        self.arrivals: Arrivals = arrivals()
        self.arrivals.introductions = Introductions(name, [KEY])

    def door(self) -> FrontDoor:
        room = Room(1 << 20, "clients")
        return FrontDoor(strict_guard(), lambda: self.verdict, self.doors, room, self.logins, self.arrivals)

    def passes_on_to(self, port: int, primary: str) -> None:
        self.verdict = PassOn(LOOPBACK, port, 1, Introducer(self.name, KEY), primary)
        for door in list(self.doors):
            door.reconsider()


class Network:
    def __init__(self, end: AsyncExitStack) -> None:
        self._end = end

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol]) -> int:
        server = await asyncio.get_running_loop().create_server(factory, LOOPBACK, 0)
        self._end.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def node(self, name: str, logins: Logins | None = None) -> Node:
        node = Node(name, logins)
        node.port = await self.listen(node.door)
        return node

    async def client(self, port: int, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        self._end.callback(writer.close)
        writer.write(said)
        return reader, writer


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    async with AsyncExitStack() as end:
        yield Network(end)


class Primary(asyncio.Protocol):
    """One that reads introductions, and answers ``word`` behind one; without a word it closes the connection then."""

    def __init__(self, told: list[Introduced], heard: list[bytes], word: bytes = b"start") -> None:
        self._reception = arrivals().reception()
        self._reception._introductions = Introductions("p", [KEY])
        self._told = told
        self._heard = heard
        self._word = word

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._reception.over:
            taken = self._reception.take(data)
            self._transport.write(taken.answer)
            if taken.introduced is not None:
                self._told.append(taken.introduced)
                self._transport.write(self._word)
                if not self._word:
                    self._transport.close()
            data = taken.rest
        self._heard.append(data)


async def test_a_client_is_introduced_by_its_own_address_to_each_primary_that_is_tried(network: Network) -> None:
    """The primary sees where a connection comes from, which is this node for all that are passed on."""
    told: list[Introduced] = []
    heard: list[bytes] = []
    dying = await network.listen(lambda: Primary(told, [], b""))
    alive = await network.listen(lambda: Primary(told, heard))
    node = await network.node("b")
    node.passes_on_to(dying, "p")
    reader, writer = await network.client(node.port, HEADER)
    while not told:
        await asyncio.sleep(0.01)
    node.passes_on_to(alive, "p")
    assert await reader.readexactly(5) == b"start"
    host, port = writer.get_extra_info("sockname")[:2]
    assert len(told) > 1 and set(told) == {Introduced("b", host, port)}
    assert b"".join(heard) == HEADER


async def test_a_primary_that_would_not_understand_it_is_told_nothing(network: Network) -> None:
    """A node of an earlier version in a cluster that is being upgraded: it would take it for a wrong header."""
    heard = bytearray()

    class Earlier(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.extend(data)

    node = await network.node("b")
    node.verdict = PassOn(LOOPBACK, await network.listen(Earlier), 1)
    await network.client(node.port, HEADER)
    while len(heard) < len(HEADER):
        await asyncio.sleep(0.01)
    assert heard == HEADER
    assert PassOn(LOOPBACK, 1, 7, Introducer("b", KEY)).introduction(None) is None, "of no address"


async def test_one_that_does_not_ask_is_told_nothing_and_tried_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens where the primary did, and is none."""
    monkeypatch.setattr(proxy, "RETRY_SECONDS", 0.01)
    heard: list[bytes] = []

    class Other(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            heard.append(data)
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(b"AMQP\x00\x00\x09\x01\r\n")

    node = await network.node("b")
    node.passes_on_to(await network.listen(Other), "p")
    reader, _ = await network.client(node.port, HEADER)
    while len(heard) < 3:
        await asyncio.sleep(0.01)
    node.passes_on_to(await network.listen(lambda: Primary([], [])), "p")
    assert await reader.readexactly(5) == b"start"
    assert set(heard) == {ASK}


async def introduced_to(network: Network, node: Node, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client from there, which another node passes on to this one."""
    reader, writer = await network.client(node.port, ASK)
    line = Introduction(Introducer("a", KEY), node.name, host, 4711).take(await reader.readline())
    assert line is not None
    writer.write(line)
    return reader, writer


async def test_a_client_that_comes_through_two_nodes_is_introduced_by_its_own_address(network: Network) -> None:
    """The second was the primary a moment ago."""
    told: list[Introduced] = []
    node = await network.node("b")
    node.passes_on_to(await network.listen(lambda: Primary(told, [])), "p")
    reader, writer = await introduced_to(network, node, "192.0.2.7")
    assert not told, "it has not said a word itself"
    writer.write(HEADER)
    assert await reader.readexactly(5) == b"start"
    assert told == [Introduced("b", "192.0.2.7", 4711)]


async def test_a_door_judges_a_client_by_the_address_of_its_introduction(network: Network) -> None:
    """So does a primary whose broker is a process of its own, which sees all clients come from here."""
    refused: list[tuple[str, str]] = []
    node = await network.node("b", Logins({}, lambda user, address, count, why: refused.append((user, address))))
    node.verdict = PassOn(LOOPBACK, await network.listen(asyncio.Protocol), 1)
    reader, writer = await introduced_to(network, node, "192.0.2.7")
    writer.write(HEADER + frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0))
    assert await reader.read() == b""
    assert refused == [("guest", "192.0.2.7")]


@pytest.mark.parametrize("late", [True, False], ids=["in the middle of it", "behind it"])
async def test_a_node_that_becomes_primary_serves_a_client_as_it_was_introduced(network: Network, late: bool) -> None:
    """Also if it becomes that while it waits for the other node's line."""
    guard = strict_guard()
    server = AmqpServer(guard, embedded_broker(guard), AmqpSettings())
    node = await network.node("b")
    reader, writer = await network.client(node.port, ASK)
    line = Introduction(Introducer("a", KEY), "b", "192.0.2.7", 4711).take(await reader.readline())
    assert line is not None
    parts = [line[:9], line[9:] + HEADER] if late else [line + HEADER]
    writer.write(parts[0])
    if not late:
        while not any(door._held for door in node.doors):
            await asyncio.sleep(0.01)
    node.verdict = Serve(server.connection_factory)
    for door in list(node.doors):
        door.look(2)
    writer.write(b"".join(parts[1:]))
    assert (await reader.readexactly(1)) == b"\x01", "connection.start"
    (served,) = server._protocols
    assert served.connection is not None
    assert (served.connection.peer, served.connection.address) == ("192.0.2.7:4711 through a", "192.0.2.7")
    assert list(server.arrivals.newcomers._by_address) == ["192.0.2.7"] and node.arrivals.newcomers.count == 0
    await server.stop()


async def test_what_may_become_an_introduction_is_handed_over_as_it_is(network: Network) -> None:
    guard = strict_guard()
    server = AmqpServer(guard, embedded_broker(guard), AmqpSettings())
    server.arrivals.introductions = Introductions("b", [KEY])
    node = await network.node("b")
    reader, writer = await network.client(node.port, ASK[:5])
    while not any(door._reception.so_far for door in node.doors):
        await asyncio.sleep(0.01)
    node.verdict = Serve(server.connection_factory)
    for door in list(node.doors):
        door.look(2)
    writer.write(ASK[5:])
    assert (await reader.readline()).startswith(b"TXHA 1 ")
    await server.stop()


async def test_a_client_that_introduces_itself_to_a_backup_is_dropped(network: Network) -> None:
    """With a line of its own making, or of another connection."""
    heard: list[bytes] = []
    node = await network.node("b")
    node.passes_on_to(await network.listen(lambda: Primary([], heard)), "p")
    for key, nonce in ((introduction_key(b"guess", "c"), None), (KEY, NONCE)):
        reader, writer = await network.client(node.port, ASK)
        asked = (await reader.readline()).split()[-1]
        writer.write(Introducer("a", key).line(nonce or asked, "b", LOOPBACK, 1) + HEADER)
        assert await reader.read() == b""
    assert not heard and node.arrivals.newcomers.count == 0
