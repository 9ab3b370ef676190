"""HTTPS at the door: a request, other certificates without a restart, and who stays in the handshake."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx2 as httpx
import pytest

from broker_plugin.http import secured as secured_module
from broker_plugin.http.app import operators_app
from broker_plugin.http.main import listening, server_of
from broker_plugin.http.secured import Secured
from broker_plugin.tls.files import TlsError
from tests.broker_plugin.http.fake_node import FakeNode
from tests.broker_plugin.http.test_protocol import LIVE
from tests.support.certificates import Authority


class Door:
    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.files = self.authority.issue("node-1")
        self.secured = Secured(self.files)
        self.port = 0

    async def sent(self, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.authority.client(), server_hostname="localhost"
        )
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(reader.read(), 20)
        return b""

    async def expires(self) -> str:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.authority.client(), server_hostname="localhost"
        )
        found = writer.get_extra_info("peercert")
        writer.close()
        return str(found["notAfter"])


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Door]:
    door = Door(directory)
    server, listener = server_of(operators_app(FakeNode()), door.secured), listening("127.0.0.1", 0)
    door.port = listener.getsockname()[1]
    running = asyncio.create_task(server.serve([listener]))
    try:
        yield door
    finally:
        server.should_exit = server.force_exit = True
        await running


async def test_it_answers_with_tls_and_not_without(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        assert (await door.sent(LIVE)).endswith(b'{"status":"ok"}')
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(LIVE)
        with contextlib.suppress(ConnectionError):
            assert b"ok" not in await asyncio.wait_for(reader.read(), 20)
        writer.close()


async def test_a_client_of_http_that_verifies_it(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        context = door.authority.client()
        async with httpx.AsyncClient(verify=context) as client:
            answer = await client.get(f"https://localhost:{door.port}/health/live")
            assert answer.json() == {"status": "ok"}


async def test_other_certificates_are_in_force_at_once_and_the_former_ones_again(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        before = await door.expires()
        door.authority.issue("node-1", until=timedelta(days=9))
        door.secured.changed(True)
        assert await door.expires() != before
        door.secured.changed(False)
        assert await door.expires() == before


async def test_what_cannot_be_used_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path) as door:
        before = await door.expires()
        door.files.key.unlink()
        door.secured.changed(True)
        assert await door.expires() == before
    assert "the HTTP door cannot use a certificate" in caplog.text


async def test_who_stays_in_the_handshake_keeps_no_one_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secured_module, "MOST_CONNECTIONS", 3)
    async with served(tmp_path) as door:
        silent = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(8)]
        try:
            assert (await door.sent(LIVE)).endswith(b'{"status":"ok"}')
            assert len(door.secured._handshakes) <= 3
        finally:
            for each in silent:
                each.close()


def test_a_door_without_certificates_that_can_be_used_is_not_opened(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("node-1", until=timedelta(hours=-1))
    with pytest.raises(TlsError, match="has expired"):
        Secured(files)
