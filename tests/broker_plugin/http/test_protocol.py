"""What strangers send to the door's port, over real sockets: an operator who comes after them is answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from broker_plugin.http import protocol as protocol_module
from broker_plugin.http import reading
from broker_plugin.http.app import operators_app
from broker_plugin.http.main import DoorServer, listening, server_of
from broker_plugin.http.protocol import MOST_HEADER
from broker_plugin.http.reading import MOST_BODY
from tests.broker_plugin.http.fake_node import FakeNode, basic

LIVE = b"GET /health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
LOGIN = f"authorization: {basic('ada')['authorization']}\r\n".encode()


@contextlib.asynccontextmanager
async def served(node: FakeNode | None = None) -> AsyncIterator[tuple[int, DoorServer]]:
    server, listener = server_of(operators_app(node or FakeNode())), listening("127.0.0.1", 0)
    running = asyncio.create_task(server.serve([listener]))
    try:
        yield listener.getsockname()[1], server
    finally:
        server.should_exit = server.force_exit = True
        await running


async def sent(port: int, data: bytes) -> bytes:
    """All that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(reader.read(), 20)
        return b""
    finally:
        writer.transport.abort()


async def answers(port: int) -> bool:
    return (await sent(port, LIVE)).endswith(b'{"status":"ok"}')


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        b"GET http://elsewhere/api/users HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade, close\r\n\r\n",
        b"POST /api/whoami HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PUT /api/users/x HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"PUT /api/users/x HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * (2 * MOST_HEADER),
    ],
)
async def test_what_is_no_request_is_refused_and_the_next_one_answered(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol_module, "REQUEST_SECONDS", 1.0)
    async with served() as (port, _):
        answer = await sent(port, data)
        assert answer == b"" or not answer.startswith(b"HTTP/1.1 5"), answer
        assert await answers(port)


async def test_a_body_of_a_hundred_megabytes_is_refused_before_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SECONDS_THROWN_AWAY", 0.2)
    head = b"PUT /api/users/x HTTP/1.1\r\nhost: a\r\n" + LOGIN
    async with served() as (port, _):
        answer = await sent(port, head + b"content-length: 100000000\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413")
        chunk = b"%x\r\n%s\r\n" % (1 << 16, b"x" * (1 << 16))
        answer = await sent(port, head + b"transfer-encoding: chunked\r\n\r\n" + chunk * (2 * MOST_BODY >> 16))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
        assert await answers(port)


@pytest.mark.parametrize("size", [MOST_BODY + 1, 20 << 20])
@pytest.mark.parametrize("chunked", [False, True])
async def test_who_sends_a_long_body_reads_that_it_is_too_long(
    size: int, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reset, which tells nothing."""
    monkeypatch.setattr(reading, "SECONDS_THROWN_AWAY", 60.0)
    length = b"transfer-encoding: chunked\r\n\r\n%x\r\n" % size if chunked else b"content-length: %d\r\n\r\n" % size
    head = b"PUT /api/users/x HTTP/1.1\r\nhost: a\r\n" + LOGIN + length
    async with served() as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"x" * size + (b"\r\n0\r\n\r\n" if chunked else b""))
        await writer.drain()
        assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 413")
        writer.close()


async def test_who_asks_first_sends_no_body_that_is_too_long() -> None:
    head = b"PUT /api/users/x HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n" + LOGIN
    async with served() as (port, _):
        answer = await sent(port, head + b"content-length: %d\r\n\r\n" % (MOST_BODY + 1))
        assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "data", [b"", b"GET /health/live HTT", b"PUT /api/whoami HTTP/1.1\r\nhost: a\r\n\r", b"GET / HTTP/1.1\r\nx: y\r\n"]
)
async def test_one_that_sends_too_slowly_is_not_waited_for(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep it."""
    monkeypatch.setattr(protocol_module, "REQUEST_SECONDS", 0.3)
    async with served() as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)

        async def drip() -> None:
            while True:
                writer.write(b"z")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        with contextlib.suppress(ConnectionError):
            assert b"200" not in await asyncio.wait_for(reader.read(), 20)
        dripping.cancel()
        writer.transport.abort()


async def test_a_body_that_never_comes_whole_ends_its_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_module, "REQUEST_SECONDS", 0.3)
    async with served() as (port, _):
        head = b"PUT /api/users/x HTTP/1.1\r\nhost: a\r\n" + LOGIN + b"content-length: 10\r\n\r\n{"
        assert not (await sent(port, head)).startswith(b"HTTP/1.1 2")
        assert await answers(port)


async def test_more_connections_than_there_may_be_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has been answered stays; of the others the oldest goes."""
    monkeypatch.setattr(protocol_module, "MOST_CONNECTIONS", 4)
    async with served() as (port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LIVE.replace(b"close", b"keep-alive"))
        assert await reader.readuntil(b'"ok"}')
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert await answers(port)
        assert len(server.server_state.connections) <= 4
        writer.write(LIVE)
        assert b"200 OK" in await asyncio.wait_for(reader.read(), 20)
        for _, each in [*silent, (reader, writer)]:
            each.transport.abort()


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with served() as (port, _):
        first = LIVE.replace(b"close", b"keep-alive")
        whoami = b"GET /api/whoami HTTP/1.1\r\nhost: a\r\n" + LOGIN + b"connection: close\r\n\r\n"
        answer = await sent(port, first + whoami)
        assert answer.index(b'"status":"ok"') < answer.index(b'"name":"ada"')


async def test_a_header_does_not_say_where_a_client_comes_from() -> None:
    """By its address it is known whether it may be ``guest``, and whose guesses of passwords are slowed down."""
    node = FakeNode()
    async with served(node) as (port, _):
        said = b"x-forwarded-for: 10.9.9.9\r\nforwarded: for=10.9.9.9\r\nx-real-ip: 10.9.9.9\r\n"
        whoami = b"GET /api/whoami HTTP/1.1\r\nhost: a\r\n" + LOGIN + said + b"connection: close\r\n\r\n"
        assert b"200 OK" in await sent(port, whoami)
    assert [each["address"] for each in node.given("door.login")] == ["127.0.0.1"]


async def test_nothing_that_strangers_send_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("uvicorn", "uvicorn.error"):
        monkey = logging.getLogger(name)
        monkey.setLevel(logging.CRITICAL + 1)
    with caplog.at_level(logging.DEBUG):
        async with served() as (port, _):
            await sent(port, b"GET /secret-of-ada HTTP/9\r\n\r\n")
            await sent(port, b"GET /secret-of-ada HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert "secret-of-ada" not in caplog.text
