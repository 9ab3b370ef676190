"""Clients of a backup that have not logged in: they are few, and the primary hears nothing of those that are silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from pamqp import commands, frame

from broker_plugin.amqp.arrivals import Arrivals
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.node import proxy
from broker_plugin.node.descriptors import Room
from broker_plugin.node.passing import PassOn, Verdict
from broker_plugin.node.proxy import FrontDoor
from tests.broker_plugin.amqp.peer import HEADER
from tests.support.arrivals import StillTime, arrivals
from tests.support.guards import strict_guard

pytestmark = pytest.mark.timeout(30)
LOOPBACK = "127.0.0.1"
OF_ONE = 4
START = frame.marshal(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0)
TUNE = frame.marshal(commands.Connection.Tune(0, 4096, 60), 0)


class Primary(asyncio.Protocol):
    """Answers each client's first word."""

    def __init__(self, backup: Backup) -> None:
        self._backup = backup

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._backup.dialled += 1

    def data_received(self, data: bytes) -> None:
        self._transport.write(START if data == HEADER else TUNE)


class Backup:
    """Its front door, and how often it has dialled the primary."""

    def __init__(self) -> None:
        self.time = StillTime()
        self.amqp = True
        self.arrivals: Arrivals = arrivals(most=10, of_one=OF_ONE, time=self.time)
        self.verdict: Verdict = None
        self.dialled = 0
        self.doors: set[FrontDoor] = set()
        self._servers: list[asyncio.Server] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> Backup:
        self.port = await self._listen(self._door)
        self.verdict = PassOn(LOOPBACK, await self._listen(lambda: Primary(self)), 1)
        return self

    async def client(self, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        self._writers.append(writer)
        writer.write(said)
        return reader, writer

    async def newcomers(self, count: int, refused: int) -> None:
        while (self.arrivals.newcomers.count, self.arrivals.newcomers.refused) != (count, refused):
            await asyncio.sleep(0.01)

    def _door(self) -> FrontDoor:
        room, logins = Room(1 << 20, "clients"), Logins({})
        return FrontDoor(strict_guard(), lambda: self.verdict, self.doors, room, logins, self.arrivals, self.amqp)

    async def _listen(self, factory: Callable[[], asyncio.BaseProtocol]) -> int:
        server = await asyncio.get_running_loop().create_server(factory, LOOPBACK, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        for each in (*self._servers, *self._writers):
            each.close()


@pytest.fixture
async def backup() -> AsyncIterator[Backup]:
    found = await Backup().start()
    yield found
    found.close()


async def closed(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        return await reader.read() == b""
    return True


async def test_the_primary_is_not_dialled_for_a_client_that_says_nothing(backup: Backup) -> None:
    """``idle_sockets_at_a_backup``: each took two descriptors here and one at the primary, and was dialled anew."""
    reader, writer = await backup.client()
    await backup.newcomers(1, 0)
    writer.write(HEADER[:7])
    while not any(door._held or door._other for door in backup.doors):
        await asyncio.sleep(0.01)
    for door in backup.doors:
        door.reconsider()
        door.look(1)
        assert door._other is None, "AMQP's header is not whole"
    assert backup.dialled == 0
    writer.write(HEADER[7:])
    assert await reader.readexactly(len(START)) == START
    assert backup.dialled == 1


async def test_idle_sockets_at_a_backup_keep_no_client_out(backup: Backup) -> None:
    """They are closed early, and a client that speaks comes through meanwhile: all come from one address."""
    idle = [await backup.client() for _ in range(3 * OF_ONE)]
    await backup.newcomers(OF_ONE, 2 * OF_ONE)
    assert all([await closed(reader) for reader, _ in idle[OF_ONE:]])
    backup.time.now = 2.0
    reader, _ = await backup.client(HEADER)
    assert await reader.readexactly(len(START)) == START
    assert await closed(idle[0][0]), "the oldest makes room"
    assert backup.dialled == 1


async def test_a_client_counts_until_it_has_logged_in(backup: Backup) -> None:
    clients = []
    for _ in range(2 * OF_ONE):
        reader, writer = await backup.client(HEADER)
        assert await reader.readexactly(len(START)) == START
        assert backup.arrivals.newcomers.count == 1
        writer.write(b"login")
        assert await reader.readexactly(len(TUNE)) == TUNE
        assert backup.arrivals.newcomers.count == 0
        clients.append(writer)
    assert len(backup.doors) == 2 * OF_ONE and backup.arrivals.newcomers.refused == 0


async def test_those_who_say_a_header_and_no_more_make_room_too(backup: Backup) -> None:
    idle = [await backup.client(HEADER) for _ in range(OF_ONE)]
    for reader, _ in idle:
        assert await reader.readexactly(len(START)) == START
    backup.time.now = 2.0
    reader, _ = await backup.client(HEADER)
    assert await reader.readexactly(len(START)) == START
    assert await closed(idle[0][0])


async def test_one_that_goes_on_counts_as_one_that_has_just_come(backup: Backup) -> None:
    first, _ = await backup.client()
    await backup.newcomers(1, 0)
    others = [await backup.client() for _ in range(OF_ONE - 1)]
    await backup.newcomers(OF_ONE, 0)
    backup.time.now = 2.0
    others[0][1].write(HEADER)
    assert await others[0][0].readexactly(len(START)) == START
    for _ in range(OF_ONE - 1):
        await backup.client()
    await backup.newcomers(OF_ONE, OF_ONE - 1)
    assert await closed(first) and all([await closed(reader) for reader, _ in others[1:]])
    assert len(backup.arrivals.newcomers._all) == OF_ONE and not others[0][0].at_eof()


async def test_a_client_that_leaves_or_waits_too_long_is_a_newcomer_no_more(
    backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, writer = await backup.client()
    await backup.newcomers(1, 0)
    writer.close()
    await backup.newcomers(0, 0)
    monkeypatch.setattr(proxy, "DEADLINE_SECONDS", 0.05)
    reader, _ = await backup.client()
    assert await closed(reader)
    await backup.newcomers(0, 0)


class SpeaksFirst(asyncio.Protocol):
    """A host broker of a protocol in which the server begins."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")


async def test_a_host_broker_may_speak_first_and_in_any_protocol(backup: Backup) -> None:
    """Nothing says that its clients have logged in: they are newcomers until its first word."""
    backup.amqp, backup.verdict = False, PassOn(LOOPBACK, await backup._listen(SpeaksFirst), 1)
    clients = [await backup.client() for _ in range(2 * OF_ONE)]
    for reader, _ in clients:
        assert await reader.readexactly(5) == b"hello"
    assert backup.arrivals.newcomers.count == 0 and len(backup.doors) == 2 * OF_ONE


async def test_idle_sockets_keep_no_client_of_a_host_broker_out(backup: Backup) -> None:
    """Of one that says nothing before its clients do."""
    backup.amqp = False
    idle = [await backup.client() for _ in range(3 * OF_ONE)]
    await backup.newcomers(OF_ONE, 2 * OF_ONE)
    assert all([await closed(reader) for reader, _ in idle[OF_ONE:]])
    backup.time.now = 2.0
    reader, _writer = await backup.client(b"TXHA 1 ?")
    assert await reader.readexactly(len(TUNE)) == TUNE, "it is passed on as it is"
    assert await closed(idle[0][0])


async def test_a_silent_client_of_a_host_broker_that_closed_it_is_passed_on_again_when_it_speaks(
    backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dialled anew five times a second, and closed again."""
    monkeypatch.setattr(proxy, "RETRY_SECONDS", 0.0)
    dialled = asyncio.Event()

    class Closes(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            dialled.set()
            transport.close()

    serving = backup.verdict
    backup.amqp, backup.verdict = False, PassOn(LOOPBACK, await backup._listen(Closes), 1)
    reader, writer = await backup.client()
    await dialled.wait()
    while any(door._other is not None for door in backup.doors):
        await asyncio.sleep(0.01)
    backup.verdict = serving
    await asyncio.sleep(0.05)
    assert backup.dialled == 0, "it is not dialled anew while it says nothing"
    writer.write(HEADER)
    assert await reader.readexactly(len(START)) == START
