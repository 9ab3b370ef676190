"""A backup passes clients on by TLS: who came encrypted goes on encrypted, to the primary and to no other node."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.amqp.protocol.introductions import (
    ASK,
    ClientWay,
    Introduced,
    Introducer,
    Introductions,
    introduction_key,
)
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.node import proxy
from broker_plugin.node.descriptors import Room
from broker_plugin.node.passing import PassOn, PrimarySide, Verdict
from broker_plugin.node.passing_tls import PassingRefusals, SecureWay
from broker_plugin.node.proxy import FrontDoor
from recovery.certificate_names import CLIENT, NODE
from tests.broker_plugin.amqp.peer import HEADER
from tests.support.arrivals import arrivals
from tests.support.cluster_certificates import ClusterAuthority, accepting, dialling
from tests.support.guards import strict_guard

pytestmark = pytest.mark.timeout(60)
LOOPBACK = "127.0.0.1"
KEY = introduction_key(b"secret", "c")


class Told(PassingRefusals):
    """What the log would say."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def _tell(self, kind: str, address: str, primary: str, reason: str) -> None:
        self.lines.append((kind, reason))


class Backup:
    """Node b's front doors."""

    def __init__(self, authority: ClusterAuthority) -> None:
        self.authority = authority
        self.verdict: Verdict = None
        self.doors: set[FrontDoor] = set()
        self.arrivals = arrivals()
        self.arrivals.introductions = Introductions("b", [KEY])
        self.room = Room(1 << 20, "clients")
        self.refusals = Told()
        self.clear = self.secured = 0

    def door(self) -> FrontDoor:
        decide: Callable[[], Verdict] = lambda: self.verdict  # noqa: E731
        return FrontDoor(
            strict_guard(), decide, self.doors, self.room, Logins({}), self.arrivals, refusals=self.refusals
        )

    def passes_on_to(self, port: int, clear: int = 1, key: bytes | None = KEY) -> None:
        context = dialling(self.authority.holder(NODE, "b"))
        options = lambda: {"ssl": context, "server_hostname": ""}  # noqa: E731
        introducer = Introducer("b", key)
        secure = SecureWay(LOOPBACK, port, "p", "c", introducer, options)
        self.verdict = PassOn(LOOPBACK, clear, 1, introducer, "p", secure)


class Primary(asyncio.Protocol):
    """Node p's end: reads an introduction, answers ``start``, and keeps what comes."""

    def __init__(self, told: list[Introduced], heard: bytearray, keys: tuple[bytes, ...] = (KEY,)) -> None:
        ours = arrivals()
        ours.introductions = Introductions("p", keys, certificates=not keys)
        self._arrivals, self._reception = ours, ours.reception()
        self._told, self.heard = told, heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self._reception.carrier = self._arrivals.carrier(transport)

    def data_received(self, data: bytes) -> None:
        if not self._reception.over:
            taken = self._reception.take(data)
            self.transport.write(taken.answer)
            if taken.introduced is not None:
                self._told.append(taken.introduced)
                self.transport.write(b"start")
            data = taken.rest
        self.heard += data


class Net:
    def __init__(self, end: AsyncExitStack, directory: Path) -> None:
        self._end = end
        self.authority = ClusterAuthority(directory)
        self.told: list[Introduced] = []
        self.heard = bytearray()
        self.primaries: list[Primary] = []

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext | None = None) -> int:
        server = await asyncio.get_running_loop().create_server(factory, LOOPBACK, 0, ssl=context)
        self._end.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def primary(self, keys: tuple[bytes, ...] = (KEY,)) -> int:
        def made() -> Primary:
            self.primaries.append(Primary(self.told, self.heard, keys))
            return self.primaries[-1]

        return await self.listen(made, accepting(self.authority.holder(NODE, "p")))

    async def backup(self) -> Backup:
        backup = Backup(self.authority)
        backup.clear = await self.listen(backup.door)
        backup.secured = await self.listen(backup.door, accepting(self.authority.holder(NODE, "b")))
        return backup

    async def client(
        self, port: int, certificate: Path | None = None, clear: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = None
        if not clear:
            context = dialling(certificate or self.authority.holder(CLIENT, "any"))
            if certificate is None:
                context = ssl.create_default_context(cafile=str(self.authority.directory / "ca/authority.pem"))
        reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
        self._end.callback(writer.close)
        return reader, writer


@pytest.fixture
async def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Net]:
    monkeypatch.setattr(proxy, "RETRY_SECONDS", 0.01)
    async with AsyncExitStack() as end:
        yield Net(end, tmp_path)


@pytest.mark.parametrize("keys", [(KEY,), ()], ids=["by the secret", "by the certificate"])
async def test_the_primary_learns_how_a_client_has_come(net: Net, keys: tuple[bytes, ...]) -> None:
    backup = await net.backup()
    backup.passes_on_to(await net.primary(keys), key=keys[0] if keys else None)
    ways = []
    for certificate, clear in ((net.authority.holder(CLIENT, "bob"), False), (None, False), (None, True)):
        reader, writer = await net.client(backup.clear if clear else backup.secured, certificate, clear)
        writer.write(HEADER)
        assert await reader.readexactly(5) == b"start"
        host, port = writer.get_extra_info("sockname")[:2]
        ways.append(net.told.pop())
        assert ways[-1][:3] == ("b", host, port)
    assert [each.way for each in ways] == [ClientWay(True, "bob"), ClientWay(True), ClientWay()]
    assert net.heard == 3 * HEADER and not backup.refusals.lines


async def test_who_came_encrypted_never_goes_on_in_clear(net: Net) -> None:
    """The primary is of an earlier version, or has no AMQPS."""
    heard, backup = bytearray(), await net.backup()
    port = await net.listen(lambda: Primary([], heard))
    backup.verdict = PassOn(LOOPBACK, port, 1, Introducer("b", KEY), "p")
    reader, writer = await net.client(backup.secured)
    writer.write(HEADER)
    assert await reader.read() == b""
    assert [kind for kind, _ in backup.refusals.lines] == ["clear"] and "to p" not in backup.refusals.lines[0][1]
    reader, writer = await net.client(backup.clear, clear=True)
    writer.write(HEADER)
    assert await reader.readexactly(5) == b"start" and heard == HEADER


class Listens(asyncio.Protocol):
    """One that stands where the primary stood: it asks at once for an introduction."""

    def __init__(self, heard: bytearray) -> None:
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.transport.write(b"TXHA 1 " + 32 * b"0" + b"\r\n")

    def data_received(self, data: bytes) -> None:
        self._heard += data


@pytest.mark.parametrize("who", ["another node", "a client", "another cluster's", "expired", "in clear", "a stranger"])
async def test_who_stands_in_the_primarys_place_hears_nothing(net: Net, who: str) -> None:
    authority, heard, backup = net.authority, bytearray(), await net.backup()
    context = {
        "another node": lambda: accepting(authority.holder(NODE, "q")),
        "a client": lambda: accepting(authority.holder(CLIENT, "p")),
        "another cluster's": lambda: accepting(authority.holder(NODE, "p", "d")),
        "expired": lambda: accepting(authority.holder(NODE, "p", age=3)),
        "in clear": lambda: None,
        "a stranger": lambda: accepting(ClusterAuthority(authority.directory / "other").holder(NODE, "p")),
    }[who]()
    backup.passes_on_to(await net.listen(lambda: Listens(heard), context))
    reader, writer = await net.client(backup.secured)
    writer.write(HEADER)
    while len(backup.refusals.lines) < 2:
        await asyncio.sleep(0.01)
    assert {kind for kind, _ in backup.refusals.lines} == {"failed"}
    if who != "in clear":
        assert not heard
    assert HEADER not in heard and ASK not in heard and b"TXHA" not in heard
    backup.passes_on_to(await net.primary())
    assert await reader.readexactly(5) == b"start", "it waits, and is passed on to the primary"


def test_what_another_still_says_is_not_answered() -> None:
    """Its challenge may have come with the end of the handshake."""

    class Other:
        def __init__(self) -> None:
            self.written, self.aborted = b"", False

        def get_extra_info(self, name: str) -> Any:
            return self if name == "ssl_object" else None

        def getpeercert(self) -> dict[str, Any]:
            return {"subjectAltName": (("URI", "txha://c/node/q"),)}

        def write(self, data: bytes) -> None:
            self.written += data

        def abort(self) -> None:
            self.aborted = True

    told, other = Told(), Other()
    secure = SecureWay(LOOPBACK, 1, "p", "c", Introducer("b", KEY), dict[str, Any])
    target = PassOn(LOOPBACK, 1, 1, None, "p", secure)
    side: Any = PrimarySide.__new__(PrimarySide)
    side.guard, side.target, side._introduction = strict_guard(), target, target.introduction(None, ClientWay(True))
    side._reached = side._closed = side._wrong = False
    side._door = SimpleNamespace(not_passed_on=lambda primary, why: told.failed("", primary, why))
    side.connection_made(other)
    side.data_received(b"TXHA 1 " + 32 * b"0" + b"\r\n")
    assert other.aborted and not other.written
    assert told.lines == [("failed", "its certificate is that of node q of the cluster")]


@pytest.mark.parametrize("keys", [(KEY,), ()], ids=["by the secret", "by the certificate"])
@pytest.mark.parametrize("kind", ["client", "reader", "node of another cluster", "none"])
async def test_no_client_introduces_itself(net: Net, kind: str, keys: tuple[bytes, ...]) -> None:
    """Whatever its certificate is, and with a line that a node would make: it has not the secret, and is no node."""
    backup = await net.backup()
    backup.arrivals.introductions = Introductions("b", keys, certificates=not keys)
    backup.passes_on_to(await net.primary())
    certificates = {
        "client": lambda: net.authority.holder(CLIENT, "a"),
        "reader": lambda: net.authority.holder("reader", "a"),
        "node of another cluster": lambda: net.authority.holder(NODE, "a", "d"),
        "none": lambda: None,
    }
    reader, writer = await net.client(backup.secured, certificates[kind]())
    for guess in (introduction_key(b"guess", "c"), None):
        reader, writer = await net.client(backup.secured, certificates[kind]())
        writer.write(ASK)
        nonce = (await reader.readline()).split()[-1]
        writer.write(Introducer("a", guess).line(nonce, "b", LOOPBACK, 1, ClientWay(True, "admin")) + HEADER)
        assert await reader.read() == b""
    assert not net.told


async def test_a_client_through_two_nodes_stays_as_it_came(net: Net) -> None:
    """The second was the primary a moment ago."""
    backup = await net.backup()
    backup.passes_on_to(await net.primary())
    for way in (ClientWay(True, "bob"), ClientWay()):
        reader, writer = await net.client(backup.secured, net.authority.holder(NODE, "a"))
        writer.write(ASK)
        nonce = (await reader.readline()).split()[-1]
        writer.write(Introducer("a", KEY).line(nonce, "b", "192.0.2.7", 4711, way) + HEADER)
        assert await reader.readexactly(5) == b"start"
        assert net.told.pop() == Introduced("b", "192.0.2.7", 4711, way)
    clear = bytearray()
    backup.verdict = PassOn(LOOPBACK, await net.listen(lambda: Primary([], clear)), 1, Introducer("b", KEY), "p")
    reader, writer = await net.client(backup.secured, net.authority.holder(NODE, "a"))
    writer.write(ASK)
    nonce = (await reader.readline()).split()[-1]
    writer.write(Introducer("a", KEY).line(nonce, "b", "192.0.2.7", 4711, ClientWay(True)) + HEADER)
    assert await reader.read() == b"" and not clear


async def test_big_messages_both_ways_wait_for_who_reads_slowly(net: Net) -> None:
    backup = await net.backup()
    backup.passes_on_to(await net.primary())
    reader, writer = await net.client(backup.secured)
    writer.write(HEADER)
    assert await reader.readexactly(5) == b"start"
    (primary,) = net.primaries
    (door,) = backup.doors
    size = 32 << 20
    primary.transport.pause_reading()
    writer.write(bytes(size))
    other: Any = door._other
    await until_still(lambda: len(net.heard) + other._transport.get_write_buffer_size())
    assert other._transport.get_write_buffer_size() < size // 4, "what the primary does not take waits at the client"
    primary.transport.resume_reading()
    while len(net.heard) < size + len(HEADER):
        await asyncio.sleep(0.01)
    primary.transport.write(bytes(size))
    ours: Any = door._transport
    await until_still(ours.get_write_buffer_size)
    assert ours.get_write_buffer_size() < size // 4, "what the client does not take waits at the primary"
    assert len(await reader.readexactly(size)) == size


async def until_still(seen: Callable[[], int]) -> None:
    last, same = -1, 0
    while same < 20:
        await asyncio.sleep(0.02)
        now = seen()
        last, same = now, same + 1 if now == last else 0


@pytest.mark.parametrize("clear", [True, False], ids=["in clear", "by TLS"])
async def test_nothing_of_what_passes_between_the_nodes_can_be_read(net: Net, clear: bool) -> None:
    """Neither what the client says, nor who it is, nor the proof of it."""
    seen = bytearray()
    port = await net.primary()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            seen.extend(data)
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection(LOOPBACK, port)
        await asyncio.gather(copy(reader, here), copy(there, writer))

    relaying = await asyncio.start_server(relay, LOOPBACK, 0)
    backup = await net.backup()
    backup.passes_on_to(relaying.sockets[0].getsockname()[1])
    certificate = None if clear else net.authority.holder(CLIENT, "bob-the-user")
    reader, writer = await net.client(backup.clear if clear else backup.secured, certificate, clear)
    body = HEADER + 100 * b"a sentence that anyone could read "
    writer.write(body)
    assert await reader.readexactly(5) == b"start"
    while len(net.heard) < len(body):
        await asyncio.sleep(0.01)
    writer.close()
    while backup.doors:
        await asyncio.sleep(0.01)
    assert len(seen) > len(body)
    for word in (HEADER, b"AMQP", b"sentence", b"start", b"TXHA", b"bob-the-user", b"127.0.0.1", b"tls"):
        assert word not in seen
    relaying.close()


async def test_a_new_generation_ends_what_was_passed_on_to_the_former(net: Net) -> None:
    backup = await net.backup()
    backup.passes_on_to(await net.primary())
    reader, writer = await net.client(backup.secured)
    writer.write(HEADER)
    assert await reader.readexactly(5) == b"start"
    assert (backup.room.pairs, backup.room.owed) == (1, 0)
    for door in list(backup.doors):
        door.look(2)
    assert await reader.read() == b""
    while backup.doors:
        await asyncio.sleep(0.01)
    assert (backup.room.pairs, backup.room.owed) == (0, 0)


async def test_who_goes_while_the_primary_is_dialled_leaves_nothing(net: Net) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() != b"", "a handshake has begun, which is not answered"

    server = await asyncio.start_server(silent, LOOPBACK, 0)
    backup = await net.backup()
    backup.passes_on_to(server.sockets[0].getsockname()[1])
    _, writer = await net.client(backup.secured)
    writer.write(HEADER)
    while not any(door._other for door in backup.doors):
        await asyncio.sleep(0.01)
    writer.transport.abort()
    while backup.doors:
        await asyncio.sleep(0.01)
    assert (backup.room.pairs, backup.room.owed) == (0, 0)
    server.close()
