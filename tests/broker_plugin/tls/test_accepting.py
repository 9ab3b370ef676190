"""Connections that are encrypted when they come, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from broker_plugin.guard import GuardedProtocol
from broker_plugin.tls import accepting
from broker_plugin.tls.accepting import dialled
from broker_plugin.tls.contexts import Asking
from broker_plugin.tls.peer_certificate import certificate_of
from tests.support.tls_listening import Listening, until

BYTES = 3 << 20


def test_what_is_said_comes_through_however_much_it_is(play: Callable[..., None]) -> None:
    async def scene(listening: Listening) -> None:
        assert await listening.echo(listening.authority.client()) == b"hello"
        much = bytes(range(256)) * (BYTES // 256)
        assert await listening.echo(listening.authority.client(), much) == much
        assert listening.names == [None, None]
        assert not listening.newcomers.there and listening.newcomers.came == 2
        await until(lambda: all(each.lost for each in listening.made))

    play(scene)


def test_what_comes_with_the_last_of_the_handshake_is_not_lost(play: Callable[..., None]) -> None:
    """A client may say its first word in the segment that ends its handshake, and go at once."""

    async def scene(listening: Listening) -> None:
        for _ in range(20):
            said = await asyncio.to_thread(_at_once, listening.port, listening.authority.client())
            assert said == b"first word"

    play(scene)


def test_who_never_says_that_it_has_heard_the_end_is_dropped(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "SHUTDOWN_SECONDS", 0.2)

    async def scene(listening: Listening) -> None:
        with await asyncio.to_thread(_shaken, listening.port, listening.authority.client()) as connected:
            await until(lambda: bool(listening.made))
            listening.made[0].transport.close()
            with suppress(ConnectionError):
                while await asyncio.to_thread(connected.recv, 1 << 16):
                    pass
        await until(lambda: listening.made[0].lost)

    play(scene)


def _shaken(port: int, context: ssl.SSLContext) -> socket.socket:
    """A connection on which nothing is said behind the handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    connected = socket.create_connection(("127.0.0.1", port), 20)
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            connected.sendall(outgoing.read())
            incoming.write(connected.recv(1 << 16))
        else:
            connected.sendall(outgoing.read())
            return connected


def _at_once(port: int, context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", port), 20) as connected:
        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                connected.sendall(outgoing.read())
                incoming.write(connected.recv(1 << 16))
        secured.write(b"first word")
        connected.sendall(outgoing.read())
        while True:
            try:
                return secured.read(100)
            except ssl.SSLWantReadError:
                incoming.write(connected.recv(1 << 16))


def test_a_reload_holds_for_connections_that_come_from_then_on(play: Callable[..., None]) -> None:
    async def scene(listening: Listening) -> None:
        reader, writer = await listening.connect(listening.authority.client())
        listening.contexts.files = listening.stranger.issue("node-1")
        listening.contexts.reload()
        assert await listening.echo(listening.stranger.client()) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            await listening.echo(listening.authority.client())
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        writer.close()

    play(scene)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_outlives_a_reload(play: Callable[..., None], version: ssl.TLSVersion) -> None:
    async def scene(listening: Listening) -> None:
        ours = listening.authority
        context = ours.client(ours.issue("alice"), maximum_version=version, minimum_version=version)
        session, _ = await asyncio.to_thread(_echoed, listening.port, context, None)
        listening.contexts.reload()
        assert (await asyncio.to_thread(_echoed, listening.port, context, session))[1] is False
        assert listening.names == ["alice", "alice"]

    play(scene, "require")


def test_no_session_is_resumed_by_a_ticket(play: Callable[..., None]) -> None:
    async def scene(listening: Listening) -> None:
        version = ssl.TLSVersion.TLSv1_3
        context = listening.authority.client(minimum_version=version)
        session, _ = await asyncio.to_thread(_echoed, listening.port, context, None)
        assert session is None or not session.has_ticket
        assert (await asyncio.to_thread(_echoed, listening.port, context, session))[1] is False

    play(scene)


def test_a_session_whose_certificate_has_expired_is_not_resumed(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS 1.2 resumes without a ticket, and verifies no one then."""

    async def scene(listening: Listening) -> None:
        ours, version = listening.authority, ssl.TLSVersion.TLSv1_2
        context = ours.client(ours.issue("alice"), maximum_version=version)
        session, _ = await asyncio.to_thread(_echoed, listening.port, context, None)
        session, again = await asyncio.to_thread(_echoed, listening.port, context, session)
        assert again
        now = time.time() + 3 * 86400
        monkeypatch.setattr(accepting.time, "time", lambda: now)
        with pytest.raises((ConnectionError, ssl.SSLError, AssertionError)):  # it is ended, and does not wait in vain
            await asyncio.to_thread(_echoed, listening.port, context, session)
        assert listening.names == ["alice", "alice"]

    play(scene, "require")
    assert accepting.EXPIRED in caplog.text


def _echoed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
    """The session in the end, and whether it was resumed."""
    plain = socket.create_connection(("127.0.0.1", port), 20)
    with context.wrap_socket(plain, server_hostname="localhost", session=session) as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
        return client.session, bool(client.session_reused)


@pytest.mark.parametrize("asking", ["ask", "require"])
def test_a_verified_certificate_says_who_it_is(play: Callable[..., None], asking: Asking) -> None:
    async def scene(listening: Listening) -> None:
        await listening.echo(listening.authority.client(listening.authority.issue("alice")))
        assert listening.names == ["alice"]

    play(scene, asking)


def refused(listening: Listening, name: str) -> ssl.SSLContext:
    ours = listening.authority
    made = {
        "of a stranger": lambda: listening.stranger.issue("alice"),
        "expired": lambda: ours.issue("alice", until=timedelta(hours=-1)),
        "not valid yet": lambda: ours.issue("alice", since=timedelta(hours=1)),
        "of a server": lambda: ours.issue("alice", usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    }
    return ours.client(made[name]())


@pytest.mark.parametrize("name", ["of a stranger", "expired", "not valid yet", "of a server"])
@pytest.mark.parametrize("asking", ["ask", "require"])
def test_a_certificate_that_is_not_good_is_refused_with_one_line(
    play: Callable[..., None], asking: Asking, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(listening: Listening) -> None:
        context = refused(listening, name)
        for _ in range(3):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await listening.echo(context)
        assert not listening.made
        await until(lambda: not listening.newcomers.there)

    play(scene, asking)
    lines = [line for line in caplog.messages if "cannot be encrypted" in line]
    assert len(lines) == 1 and "its certificate is not accepted" in lines[0] and "127.0.0.1" in lines[0]


def test_one_without_a_certificate_is_refused_where_it_is_required(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(listening: Listening) -> None:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await listening.echo(listening.authority.client())
        await until(lambda: not listening.newcomers.there)
        assert not listening.made

    play(scene, "require")
    assert "it gives no certificate" in caplog.text


def test_one_without_a_certificate_is_welcome_where_it_is_asked_for(play: Callable[..., None]) -> None:
    async def scene(listening: Listening) -> None:
        assert await listening.echo(listening.authority.client()) == b"hello"
        assert listening.names == [None]

    play(scene, "ask")


def test_tls_1_2_is_the_oldest(play: Callable[..., None]) -> None:
    async def scene(listening: Listening) -> None:
        version = ssl.TLSVersion.TLSv1_2
        assert await listening.echo(listening.authority.client(maximum_version=version)) == b"hello"
        old = listening.authority.client(minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
        with pytest.raises(OSError):
            await listening.echo(old)

    play(scene)


@pytest.mark.parametrize(
    ("said", "line"), [(b"AMQP\0\0\x09\x01", "it does not speak TLS"), (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP")]
)
def test_what_is_no_tls_is_closed_at_once(
    play: Callable[..., None], said: bytes, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(listening: Listening) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(said)
        await asyncio.wait_for(reader.read(), 20)
        writer.close()
        await until(lambda: not listening.newcomers.there)

    play(scene)
    assert line in caplog.text


def test_one_that_keeps_silent_has_an_end(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "HANDSHAKE_SECONDS", 0.2)

    async def scene(listening: Listening) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert not listening.newcomers.there

    play(scene)
    assert "it has not finished its handshake" in caplog.text


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_one_that_keeps_silent_makes_room(
    play: Callable[..., None], said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """And the bound says so, not a line for each of them."""

    async def scene(listening: Listening) -> None:
        listening.newcomers.most = 2
        silent = [await asyncio.open_connection("127.0.0.1", listening.port) for _ in range(5)]
        for _, writer in silent:
            writer.write(said)
        assert await listening.echo(listening.authority.client()) == b"hello"
        await until(lambda: len(listening.newcomers.there) <= 2)
        ended = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        await until(lambda: sum(each.done() for each in ended) >= 3)
        assert "cannot be encrypted" not in caplog.text
        for each, (_, writer) in zip(ended, silent, strict=True):
            each.cancel()
            writer.close()

    play(scene)


def test_one_that_goes_in_its_handshake_leaves_nothing(play: Callable[..., None]) -> None:
    async def scene(listening: Listening) -> None:
        for said in (b"", b"\x16\x03\x01\x02\x00"):
            _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
            writer.write(said)
            writer.close()
        await until(lambda: listening.newcomers.came == 2 and not listening.newcomers.there)

    play(scene)


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_may_go_at_any_byte_of_its_handshake(play: Callable[..., None], reset: bool) -> None:
    async def scene(listening: Listening) -> None:
        context = listening.authority.client(listening.authority.issue("alice"))
        cuts = [1, 5, 6, 100, 300, 516, 517, 518, 530, 600, 700, 900, 1200, 1300, 1400, 2000]
        for cut in cuts:
            await asyncio.to_thread(_cut, listening.port, context, cut, reset)
        await until(lambda: listening.newcomers.came == len(cuts) and not listening.newcomers.there)
        await until(lambda: all(each.lost for each in listening.made))
        assert await listening.echo(context) == b"hello"

    play(scene, "require")


def _cut(port: int, context: ssl.SSLContext, most: int, reset: bool) -> None:
    """Shake hands and speak, and go after so many bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", port), 20) as connected:
        if reset:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        while most > 0:
            try:
                secured.do_handshake()
                secured.write(b"x" * 100)
            except ssl.SSLWantReadError:
                pass
            said = outgoing.read()[:most]
            most -= len(said)
            connected.sendall(said)
            if most > 0 and not incoming.write(connected.recv(1 << 16)):
                return


def test_a_node_dials_by_what_is_in_force(play: Callable[..., None]) -> None:
    async def scene(listening: Listening) -> None:
        listening.asking = "require"
        heard: list[bytes] = []

        class Dialled(GuardedProtocol):
            guard = listening.guard

            def data_received(self, data: bytes) -> None:
                heard.append(data)

        options = dialled(listening.contexts.dialling)
        transport = await listening.guard.create_connection(Dialled, "127.0.0.1", listening.port, **options)
        found = certificate_of(transport)
        assert found is not None and found.common_name == "node-1" and found.serves and found.asks
        transport.write(b"hello")
        await until(lambda: heard == [b"hello"])
        assert listening.names == ["node-1"]
        transport.close()
        listening.contexts.files = listening.authority.issue("node-1")._replace(authority=listening.stranger.file)
        listening.contexts.reload()
        with pytest.raises(ssl.SSLCertVerificationError):
            await listening.guard.create_connection(
                Dialled, "127.0.0.1", listening.port, **dialled(listening.contexts.dialling)
            )

    play(scene)
