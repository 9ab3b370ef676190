"""What a stranger with the peer port, another local user, and who has captured a stream can do: next to nothing.

docs/promises.md has the table; each of its rows is a test here, in ``tests/ha/messages`` or in
``tests/processes/test_strangers.py``. Two nodes' links on loopback, with a tap on the way from a to b.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_plugin.logs import seldom
from broker_plugin.node import links as links_module
from broker_plugin.node.links import LinkCredentials, Links, PeerAddress
from ha.messages.election import Promoted
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.proof import LinkSecrets
from ha.messages.seals import LENGTH, TAG, Sealer
from ha.messages.stream import Ack, Commit
from ha.messages.wire import encode
from tests.support.far_end import SECRET, FarEnd, dialling, framed, listening, reading
from tests.support.guards import strict_guard

FORGED = Ack(1, 7, 1 << 40)
TRUE = Ack(1, 7, 3)
OTHER_SECRET = b"another-secret-of-enough-characters"


class Tap:
    """Between two nodes: keeps what goes from who dials to who listens, and can change it or put something in."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.captured = b""
        self.answered = b""
        self.change: Callable[[bytes], bytes] = lambda data: data
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def inject(self, data: bytes) -> None:
        self.forwards.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, self.forwards = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers += [writer, self.forwards]
        self.captured = self.answered = b""
        self._tasks += [asyncio.ensure_future(self._carry(reader, self.forwards, True))]
        await self._carry(there, writer, False)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forwards: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if forwards:
                    self.captured += data
                    data = self.change(data)
                else:
                    self.answered += data
                writer.write(data)
        writer.close()

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Pair:
    """Nodes a and b; a reaches b through the tap. ``got``: what came to b."""

    def __init__(self, secrets: dict[str, list[bytes]] | None = None) -> None:
        self.secrets = secrets or {"a": [SECRET], "b": [SECRET]}
        self.linked: set[tuple[str, str]] = set()
        self.lost: list[tuple[str, str]] = []
        self.got: list[Any] = []
        self.links: dict[str, Links] = {}

    def credentials(self, name: str) -> LinkCredentials:
        return LinkCredentials(LinkSecrets(self.secrets[name], [b"a-secret-for-readers-only-of-some-length"]))

    async def start(self, ports: tuple[int, int], wait: bool = True) -> Pair:
        self.port = ports[1]
        self.tap = Tap(ports[1])
        reached = {"a": ports[0], "b": await self.tap.start()}
        for name, port in zip("ab", ports, strict=True):
            (other,) = {"a", "b"} - {name}
            self.links[name] = Links(
                strict_guard(),
                Hello(WIRE_VERSION, "cluster", name, "127.0.0.1", 1, "identity-of-the-cluster"),
                self.credentials(name),
                [PeerAddress(other, "127.0.0.1", reached[other])],
                lambda peer, up, name=name: self._told(name, peer, up is not None),  # type: ignore[misc]
                lambda peer, message, name=name: self.got.append((peer, message)) if name == "b" else None,  # type: ignore[misc]
            )
            await self.links[name].start("127.0.0.1", port)
        if wait:
            await self.until(lambda: len(self.linked) == 2)
        return self

    def _told(self, name: str, peer: str, up: bool) -> None:
        (self.linked.add if up else self.linked.discard)((name, peer))
        if not up:
            self.lost.append((name, peer))

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.005)

    async def true_message(self, number: int = 3) -> None:
        """It comes, through the tap, whatever else has come before."""
        await self.until(lambda: ("a", "b") in self.linked)
        self.links["a"].send("b", Ack(1, 7, number))
        await self.until(lambda: ("a", Ack(1, 7, number)) in self.got)

    async def stop(self) -> None:
        await self.tap.stop()
        for links in self.links.values():
            await links.stop()


@pytest.fixture(autouse=True)
def every_refusal_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seldom, "QUIET_SECONDS", 0)


@pytest.fixture
def ports(unused_tcp_port_factory: Callable[[], int]) -> tuple[int, int]:
    return unused_tcp_port_factory(), unused_tcp_port_factory()


@pytest.fixture
async def pair(ports: tuple[int, int]) -> AsyncIterator[Pair]:
    made = await Pair().start(ports)
    yield made
    await made.stop()


async def say(port: int, data: bytes) -> bytes:
    """To node b, as a stranger; returns everything that it answers before it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answered = b""
    with contextlib.suppress(ConnectionError):
        while more := await reader.read(1 << 16):
            answered += more
    writer.close()
    return answered


async def test_a_forged_acknowledgement_is_not_taken(pair: Pair) -> None:
    """As versions before 0.1.0 greeted: a name from the configuration was all that was asked for."""
    hello = Hello(WIRE_VERSION, "cluster", "a", "", 0, "identity-of-the-cluster")
    await say(pair.port, framed(encode(hello)) + framed(encode(FORGED)) + framed(encode(Promoted(9))))
    await pair.true_message()
    assert pair.got == [("a", TRUE)]


async def test_a_stranger_is_told_nothing(pair: Pair) -> None:
    """What comes before a proof is a challenge: no name of a node or cluster, no version but that of the proof."""
    answered = await say(pair.port, framed(b"?" * 20))
    assert len(answered) == LENGTH.size + 37 and answered[4:9] == b"txha\x01"
    far = FarEnd(dialling(secret=OTHER_SECRET))
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
    with pytest.raises(asyncio.IncompleteReadError):
        await far.meet_there(reader, writer)
    assert far.session is None and not far.got
    writer.close()


@pytest.mark.parametrize("nested", [200, 3900])
async def test_a_greeting_of_nested_arrays_leads_to_no_traceback(
    pair: Pair, nested: int, caplog: pytest.LogCaptureFixture
) -> None:
    await say(pair.port, framed(b"\x91" * nested + b"\x90"))
    await pair.true_message()
    assert "Traceback" not in caplog.text and "closing the connection with an unknown peer" in caplog.text


async def test_a_captured_stream_is_worth_nothing_on_another_connection(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.true_message()
    captured = pair.tap.captured
    assert encode(TRUE) in captured, "it can be read; it is not encrypted"
    await say(pair.port, captured)
    await pair.true_message(4)
    assert pair.got == [("a", TRUE), ("a", Ack(1, 7, 4))]
    assert "it does not know the secret of this cluster" in caplog.text


@pytest.mark.parametrize(
    "attack",
    [
        lambda tap: tap.captured[-LENGTH.size - TAG - len(encode(TRUE)) :],
        lambda tap: Sealer(b"a guessed key, of 32 bytes, no .").seal(encode(FORGED)),
        lambda tap: framed(encode(FORGED)),
        lambda tap: tap.answered[-60:],
        lambda tap: b"\x00",
    ],
    ids=["the last message once more", "another key", "no seal", "the other direction", "a byte"],
)
async def test_what_is_put_into_a_link_ends_it_and_is_not_taken(
    pair: Pair, attack: Callable[[Tap], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    await pair.true_message()
    pair.tap.inject(attack(pair.tap))
    pair.links["a"].send("b", Ack(1, 7, 4))
    await pair.until(lambda: ("a", "b") in pair.lost)
    await pair.true_message(5)
    assert [message for _, message in pair.got] == [TRUE, Ack(1, 7, 5)], (
        "what came behind it is lost, as on any network"
    )
    assert "changed, lost, injected or repeated" in caplog.text or "a message of" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:6] + bytes([data[6] ^ 1]) + data[7:],
        lambda data: data[:-8],  # what follows takes the place, and is by no chance the same
        lambda data: b"",
        lambda data: data.replace(encode(Ack(1, 7, 4)), encode(Ack(1, 7, 5))),
    ],
    ids=["a bit of the tag", "a bit of the message", "cut", "left out", "another number"],
)
async def test_a_message_that_was_changed_on_the_way_is_not_taken(pair: Pair, change: Callable[[bytes], bytes]) -> None:
    await pair.true_message()
    pair.tap.change = change
    pair.links["a"].send("b", Ack(1, 7, 4))
    await pair.until(lambda: encode(Ack(1, 7, 4)) in pair.tap.captured)
    pair.tap.change = lambda data: data
    pair.links["a"].send("b", Ack(1, 7, 6))
    await pair.until(lambda: ("a", "b") in pair.lost)
    assert pair.got == [("a", TRUE)]
    await pair.true_message(7)


async def test_a_node_is_not_reflected_to_itself(pair: Pair) -> None:
    """Who sits on a's port for b dials a, and hands each what the other says: names stand under the seals."""
    there, back = await asyncio.open_connection("127.0.0.1", pair.links["a"]._server.sockets[0].getsockname()[1])  # type: ignore[union-attr]
    ends: asyncio.Queue[None] = asyncio.Queue()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    target.write(data)
            target.close()

        await asyncio.gather(carry(reader, back), carry(there, writer))
        await ends.put(None)

    linked: list[Any] = []
    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dialler = Links(
        strict_guard(),
        pair.links["a"].hello,
        LinkCredentials(LinkSecrets([SECRET])),
        [PeerAddress("b", "127.0.0.1", port)],
        lambda peer, up: linked.append((peer, up)),
        lambda peer, message: linked.append((peer, message)),
    )
    await dialler.start("127.0.0.1", 0)
    async with asyncio.timeout(30):
        await ends.get()
    await dialler.stop()
    server.close()
    assert not linked, "each of them is told that it speaks to a, and a is not b"


async def test_a_reader_cannot_greet_as_a_node(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
    far = await reading(b"a-secret-for-readers-only-of-some-length").meet_there(reader, writer)
    writer.write(far.say(Hello(WIRE_VERSION, "cluster", "a", "", 0, "identity-of-the-cluster"), FORGED))
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(1), 20) == b""
    writer.close()
    await pair.true_message()
    assert pair.got == [("a", TRUE)] and "it has the right to read the log, and greets as a peer" in caplog.text


@pytest.mark.parametrize(
    ("secrets", "linked"),
    [
        ({"a": [SECRET, OTHER_SECRET], "b": [SECRET]}, {("a", "b"), ("b", "a")}),
        ({"a": [OTHER_SECRET, SECRET], "b": [SECRET, OTHER_SECRET]}, {("a", "b"), ("b", "a")}),
        ({"a": [OTHER_SECRET], "b": [OTHER_SECRET, SECRET]}, {("a", "b"), ("b", "a")}),
        ({"a": [SECRET], "b": [OTHER_SECRET]}, set()),
    ],
    ids=["added", "switched", "removed", "old after the rotation"],
)
async def test_nodes_whose_secret_is_rotated(
    ports: tuple[int, int],
    secrets: dict[str, list[bytes]],
    linked: set[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = await Pair(secrets).start(ports, wait=bool(linked))
    if not linked:
        await pair.until(lambda: caplog.text.count("it does not know the secret of this cluster") >= 4)
    assert pair.linked == linked
    assert SECRET.decode() not in caplog.text and OTHER_SECRET.decode() not in caplog.text
    await pair.stop()


async def test_a_flood_of_silent_connections_keeps_no_node_out(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest makes room, and a node needs a moment; the log has one line of all of them."""
    monkeypatch.setattr(seldom, "QUIET_SECONDS", 60)
    monkeypatch.setattr(links_module, "GREETING_SECONDS", 600)
    silent = [await asyncio.open_connection("127.0.0.1", pair.port) for _ in range(3 * links_module.UNGREETED)]
    await pair.until(lambda: len(pair.links["b"]._in) <= links_module.UNGREETED + 1)
    for writer in pair.tap._writers:
        writer.transport.abort()
    await pair.until(lambda: ("a", "b") in pair.lost)
    await pair.true_message()
    assert len(pair.links["b"]._ungreeted) <= links_module.UNGREETED
    (line,) = [each for each in caplog.messages if "unknown peer" in each]
    assert "others have come that have not proved who they are" in line and "at 127.0.0.1:" in line
    for _, writer in silent:
        writer.transport.abort()


async def test_who_keeps_silent_is_disconnected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of the proof, or behind it."""
    monkeypatch.setattr(links_module, "GREETING_SECONDS", 0.05)
    begun = framed(FarEnd()._proof.take(b"txha\x01" + bytes(32))[0])[:20]
    for said in (b"", b"\x00", begun):
        await say(pair.port, said)
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
    await FarEnd().meet_there(reader, writer)
    with contextlib.suppress(ConnectionError):
        assert await reader.read(1) == b""
    writer.close()
    await pair.true_message()


async def test_who_listens_where_a_node_should_learns_nothing_and_is_not_linked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another user of the machine takes the port of a node that is down; it does not know the secret."""
    heard: list[bytes] = []
    came = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = listening(OTHER_SECRET)
        writer.write(far.opening())
        with contextlib.suppress(ValueError):
            while data := await reader.read(1 << 16):
                heard.append(data)
                writer.write(framed(bytes(32)))
                far.take(data)
        came.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    linked: list[Any] = []
    links = Links(
        strict_guard(),
        Hello(WIRE_VERSION, "cluster", "a", "127.0.0.1", 1, "identity-of-the-cluster"),
        LinkCredentials(LinkSecrets([SECRET])),
        [PeerAddress("b", "127.0.0.1", server.sockets[0].getsockname()[1])],
        lambda peer, up: linked.append(up),
        lambda peer, message: None,
    )
    await links.start("127.0.0.1", 0)
    async with asyncio.timeout(30):
        await came.wait()
    links.send("b", Commit(1, 1, 1))
    await links.stop()
    server.close()
    assert not linked and len(heard[0]) == LENGTH.size + 70 and b"cluster" not in b"".join(heard)
    assert "closing the connection with b at 127.0.0.1:" in caplog.text
