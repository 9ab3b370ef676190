"""The socket of a host broker: who may connect, what is refused, and what the node learns when its broker goes."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_plugin.host import node_end
from broker_plugin.host.broker_end import AttachmentEnded, attach_broker
from broker_plugin.host.from_broker import AskToken, Attach
from broker_plugin.host.from_node import LeaseUntil, Welcome
from broker_plugin.host.node_end import BrokerDoor
from broker_plugin.host.wire import HOST_VERSION, decode_from_node, framed
from tests.broker_plugin.host.across import text
from tests.support.guards import strict_guard

HELLO = Attach(HOST_VERSION, "tiny", "127.0.0.1", 5000)


class Gone:
    """A door that listens; ``reasons``: why its broker has gone, each time that is told."""

    def __init__(self, directory: Path) -> None:
        self.reasons: list[str] = []
        self.changed = asyncio.Event()
        self.door = BrokerDoor(strict_guard(), directory / "host.sock", "c", "n", self._gone)

    def _gone(self, reason: str) -> None:
        self.reasons.append(reason)
        self.changed.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.door.path))


@pytest.fixture
async def gone(tmp_path: Path) -> AsyncIterator[Gone]:
    made = Gone(tmp_path)
    await made.door.listen()
    yield made
    await made.door.stop()


async def read(reader: asyncio.StreamReader) -> object:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return decode_from_node(await reader.readexactly(size))


async def test_only_its_own_user_can_connect(gone: Gone) -> None:
    assert stat.S_IMODE(os.stat(gone.door.path).st_mode) == 0o600


async def test_a_broker_is_welcomed_and_the_node_learns_where_it_listens(gone: Gone) -> None:
    reader, writer = await gone.connect()
    writer.write(framed(HELLO))
    assert await read(reader) == Welcome(HOST_VERSION, "c", "n")
    await gone.door.attached.wait()
    assert gone.door.address == ("127.0.0.1", 5000)
    gone.door.remote.lease(12.5)
    assert await read(reader) == LeaseUntil(12.5)
    writer.close()
    await gone.changed.wait()
    assert gone.reasons == ["the host broker has closed its connection"]


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (framed(Attach(HOST_VERSION + 1, "new", "127.0.0.1", 5000)), "it speaks version 2 of the host protocol"),
        (framed(AskToken(1, 1, b"t")), "it asks before it attaches"),
        (b"\xff\xff\xff\xff", "a message of 4294967295 bytes, and 512 are the most"),
        (b"\0\0\0\1\xc1", "MessagePack data is malformed"),
    ],
)
async def test_who_is_no_broker_is_refused_and_the_node_waits_on(
    gone: Gone, first: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await gone.connect()
    writer.write(first)
    assert await reader.read() == b""
    assert why in caplog.text
    assert gone.reasons == [] and not gone.door.attached.is_set()
    writer.close()


async def test_a_second_broker_is_refused_and_the_first_one_stays(gone: Gone) -> None:
    reader, writer = await gone.connect()
    writer.write(framed(HELLO))
    await read(reader)
    second, other = await gone.connect()
    other.write(framed(HELLO))
    assert await second.read() == b""
    gone.door.remote.lease(1.0)
    assert await read(reader) == LeaseUntil(1.0)
    assert gone.reasons == []
    for each in (writer, other):
        each.close()


async def test_a_broker_that_asks_what_none_may_ends_its_node(gone: Gone) -> None:
    reader, writer = await gone.connect()
    writer.write(framed(HELLO))
    await read(reader)
    writer.write(framed(AskToken(1, 1, b"t")))
    await gone.changed.wait()
    assert gone.reasons == ["the host broker was disconnected: it names activation 1, and 0 is the last"]
    writer.close()


async def test_host_broker_does_not_read(gone: Gone, monkeypatch: pytest.MonkeyPatch) -> None:
    """``host_broker_does_not_read``: what waits for it is bounded."""
    monkeypatch.setattr(node_end, "MAX_UNREAD", 100_000)
    reader, writer = await gone.connect()
    writer.write(framed(HELLO))
    await read(reader)
    for number in range(40):
        gone.door.remote.on_enqueued(1, number, number, text("x" * 50_000))
        await asyncio.sleep(0)
    await gone.changed.wait()
    assert "does not read" in gone.reasons[0]
    writer.close()


async def test_a_node_that_was_killed_leaves_its_socket_and_the_next_one_listens_there(tmp_path: Path) -> None:
    first, second = Gone(tmp_path), Gone(tmp_path)
    await first.door.listen()
    await second.door.listen()
    _, writer = await second.connect()
    writer.write(framed(HELLO))
    await second.door.attached.wait()
    writer.close()
    for each in (first, second):
        await each.door.stop()


async def test_a_broker_is_told_that_no_node_listens_or_that_it_is_refused(gone: Gone, tmp_path: Path) -> None:
    with pytest.raises(AttachmentEnded, match=r"no node listens at .*: No such file"):
        await attach_broker(tmp_path / "nowhere", None, ("127.0.0.1", 1), "tiny")  # type: ignore[arg-type]
    _, writer = await gone.connect()
    writer.write(framed(HELLO))
    await gone.door.attached.wait()
    with pytest.raises(AttachmentEnded, match="the node refuses this broker; the node's log says why"):
        await attach_broker(gone.door.path, None, ("127.0.0.1", 1), "tiny")  # type: ignore[arg-type]
    writer.close()
