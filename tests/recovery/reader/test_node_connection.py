"""A reader's connection: it proves itself, believes only a node that does so too, and says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from broker_plugin.node.config import READ_SECRET
from ha.messages.greeting import Hello
from recovery.pipeline.remote import RemoteLog
from recovery.reader.node_connection import NodeConnection, NotReached, reader_secret
from tests.broker_plugin.node.served_log import END, OURS, Node
from tests.broker_plugin.node.served_log import running_node as running_node
from tests.support.far_end import MOST, SECRET, FarEnd, framed, listening
from txobserver.ports.store import StoreError

OTHER = b"another-secret-of-enough-characters"


def connect(address: str, secret: bytes = SECRET) -> Hello:
    connection = NodeConnection(address, secret)
    connection.close()
    return connection.hello


async def test_a_reader_proves_itself_by_the_secret_of_its_file_or_its_environment(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(READ_SECRET, raising=False)
    assert (await node.read(lambda log: log.extent())).last == END

    def read() -> int:
        return RemoteLog(node.address).extent().last

    with pytest.raises(StoreError, match=f"name the file in which it stands .secretFile., or set {READ_SECRET}"):
        await asyncio.to_thread(read)
    for given in (SECRET.decode(), f"@{node.secret_file}"):
        monkeypatch.setenv(READ_SECRET, given)
        assert await asyncio.to_thread(read) == END


async def test_another_secret_is_refused_in_words_and_not_shown(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.secret_file.write_bytes(OTHER)
    with pytest.raises(StoreError, match="it ends the connection: it accepts another secret, as its log says") as found:
        await node.read(lambda log: log.extent())
    assert "it does not know the secret of this cluster (peer.read_secret)" in caplog.text
    assert OTHER.decode() not in f"{found.value}{caplog.text}" and not node.server.readers


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(SECRET)
    (tmp_path / "s").chmod(0o644)
    with pytest.raises(ValueError, match="others than its owner may use"):
        reader_secret(str(tmp_path / "s"))


class Impostor:
    """Listens where a node should; ``say`` gets what it was sent so far and returns what to say."""

    def __init__(self, say: Callable[[bytes], bytes]) -> None:
        self._say = say
        self.heard = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(self._say(b""))
            while data := await reader.read(1 << 16):
                self.heard += data
                if not (said := self._say(data)):
                    break
                writer.write(said)
        writer.close()


@contextlib.asynccontextmanager
async def impostor(say: Callable[[bytes], bytes]) -> AsyncIterator[tuple[str, Impostor]]:
    made = Impostor(say)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", made
    server.close()


def as_node(greet: Callable[[FarEnd], bytes]) -> Callable[[bytes], bytes]:
    """A node that knows the secret, and greets so."""
    far = listening()

    def say(data: bytes) -> bytes:
        answer = far.take(data) if data else far.opening()
        return answer + greet(far) if far.session is not None else answer

    return say


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (framed(b"txha\x01" + bytes(32)), "it does not know the secret of this cluster"),
        (framed(b"\x98\x00\x04\xa1c"), "as versions before 0.1.0 do"),
        (b"\xff\xff\xff\xff", "bytes before it proves who it is"),
        (b"HTTP/1.1 400 Bad Request\r\n", "bytes before it proves who it is"),
    ],
)
async def test_who_does_not_know_the_secret_is_not_believed(said: bytes, reason: str) -> None:
    """And is asked for nothing."""
    async with impostor(lambda data: framed(bytes(32)) if data else said) as (address, made):
        with pytest.raises(ValueError, match=reason):
            await asyncio.to_thread(connect, address)
    assert len(made.heard) in (0, 74), "an answer to its challenge, at most"


def other_at_the_end(said: bytes) -> bytes:
    """With another last octet, whichever it has."""
    return said[:-1] + bytes([said[-1] ^ 1])


@pytest.mark.parametrize(
    ("greet", "reason"),
    [
        (lambda far: far.say(b"\x90"), "does not greet"),
        (lambda far: other_at_the_end(far.say(OURS)), "changed, lost, injected or repeated"),
        (lambda far: (MOST * 2 + 1).to_bytes(4, "big"), "a message of"),
    ],
)
async def test_what_comes_behind_the_proof_is_looked_at(greet: Callable[[FarEnd], bytes], reason: str) -> None:
    async with impostor(as_node(greet)) as (address, _):
        with pytest.raises(ValueError, match=reason):
            await asyncio.to_thread(connect, address)


async def test_a_node_is_believed(unused_tcp_port: int) -> None:
    async with impostor(as_node(lambda far: far.say(OURS))) as (address, _):
        assert await asyncio.to_thread(connect, address) == OURS
    with pytest.raises(NotReached):
        await asyncio.to_thread(connect, f"127.0.0.1:{unused_tcp_port}")
