"""Links between nodes and whatever else may connect: any bytes, in any pieces, from any peer.

A clear refusal and the end of that connection; the others go on. Nothing is kept beyond what has come, and of a peer
who has not greeted next to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.node import links as links_module
from broker_plugin.node.links import MAX_HELLO, MAX_MESSAGE, Links, PeerAddress, PeerProtocol, framed
from ha.messages.election import Probe, Promoted
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.stream import Commit
from tests.support.examples import examples
from tests.support.guards import strict_guard
from tests.support.messages import MESSAGES

pytestmark = pytest.mark.fuzz

OURS = Hello(WIRE_VERSION, "cluster", "a", "127.0.0.1", 1)
THEIRS = Hello(WIRE_VERSION, "cluster", "b", "127.0.0.1", 2)
EVERY = st.sampled_from(MESSAGES)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=8)


class Transport:
    """Says whether the connection was ended."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


class Listener:
    """A connection that a peer made to us; ``got`` is what came of it."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.transport = Transport()
        greeted = lambda protocol, hello: self.got.append(("greeted", hello))  # noqa: E731
        self.protocol = PeerProtocol(
            strict_guard(), OURS, ["b"], greeted, lambda *message: self.got.append(message), lambda protocol: None
        )
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    def receive(self, data: bytes, cuts: list[int]) -> list[tuple[str, Any]]:
        edges = [0, *sorted(each % (len(data) + 1) for each in cuts), len(data)]
        for a, b in pairwise(edges):
            if not self.transport.aborted:
                self.protocol.data_received(data[a:b])
                if self.protocol.peer is None:
                    assert len(self.protocol._buffer) <= MAX_HELLO + 4 + (b - a)
        assert not self.got or self.got[0][0] == "greeted", "nothing is taken from a peer that has not greeted"
        return self.got


@examples(300)
@given(st.binary(max_size=200), st.sampled_from([b"", framed(THEIRS)]), CUTS)
def test_any_bytes(data: bytes, before: bytes, cuts: list[int]) -> None:
    one, other = Listener(), Listener()
    assert one.receive(before + data, cuts) == other.receive(before + data, [])
    assert one.transport.aborted == other.transport.aborted


@examples(200)
@given(st.lists(EVERY, max_size=6), st.integers(0, 1 << 20), CUTS)
def test_a_flipped_bit(messages: list[Any], bit: int, cuts: list[int]) -> None:
    stream = bytearray(b"".join(framed(each) for each in [THEIRS, *messages]))
    bit %= len(stream) * 8
    stream[bit // 8] ^= 1 << bit % 8
    one, other = Listener(), Listener()
    assert one.receive(bytes(stream), cuts) == other.receive(bytes(stream), [])


@examples(100)
@given(st.lists(EVERY.filter(lambda each: not isinstance(each, Hello)), max_size=6), CUTS)
def test_proper_messages_in_any_pieces(messages: list[Any], cuts: list[int]) -> None:
    listener = Listener()
    got = listener.receive(b"".join(framed(each) for each in [THEIRS, *messages]), cuts)
    assert got == [("greeted", THEIRS), *(("b", each) for each in messages)]
    assert not listener.transport.aborted and not listener.protocol._buffer


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff", "a message of 4294967295 bytes"),
        ((MAX_HELLO + 1).to_bytes(4, "big"), "before it greets"),
        (framed(Probe(1, 1)), "does not greet"),
        (framed(Hello(WIRE_VERSION + 1, "cluster", "b", "", 0)), "version 5: upgrade node a"),
        (framed(Hello(WIRE_VERSION, "another", "b", "", 0)), "belongs to cluster another"),
        (framed(Hello(WIRE_VERSION, "cluster", "b", "", 0, "feed")), "another cluster that is also called cluster"),
        (framed(THEIRS) + framed(THEIRS), "greets twice"),
        (framed(THEIRS) + (MAX_MESSAGE + 1).to_bytes(4, "big"), "bytes"),
        (framed(THEIRS) + b"\0\0\0\1\xc1", "malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes"),
    ],
)
def test_what_is_refused_is_refused_in_words(data: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    listener.receive(data, [])
    assert listener.transport.aborted
    (line,) = caplog.messages
    assert "closing the connection" in line and reason in line
    assert [kind for kind, _ in listener.got] in ([], ["greeted"])


def test_somebody_who_sends_on_after_the_refusal_fills_nothing() -> None:
    """Until the transport has ended, more may come."""
    listener = Listener()
    listener.receive(b"\xff\xff\xff\xff", [])
    for _ in range(100):
        listener.protocol.data_received(bytes(65536))
    assert not listener.protocol._buffer


class Pair:
    """Two nodes' links on loopback."""

    def __init__(self) -> None:
        self.up: list[tuple[str, bool]] = []
        self.got: list[tuple[str, Any]] = []

    async def start(self, port_a: int, port_b: int) -> None:
        peers = {"a": port_a, "b": port_b}
        self.links = {
            name: Links(
                strict_guard(),
                Hello(WIRE_VERSION, "cluster", name, "127.0.0.1", 1),
                [PeerAddress(other, "127.0.0.1", port) for other, port in peers.items() if other != name],
                lambda peer, up: self.up.append((peer, up is not None)),
                lambda peer, message: self.got.append((peer, message)),
            )
            for name in peers
        }
        for name, port in peers.items():
            await self.links[name].start("127.0.0.1", port)
        await self.until(lambda: {("a", True), ("b", True)} <= set(self.up))

    async def until(self, condition: Any) -> None:
        while not condition():
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        for links in self.links.values():
            await links.stop()


@pytest.fixture
async def pair(unused_tcp_port_factory: Any) -> AsyncIterator[tuple[Pair, int]]:
    pair, ports = Pair(), (unused_tcp_port_factory(), unused_tcp_port_factory())
    await pair.start(*ports)
    yield pair, ports[0]
    await pair.stop()


async def test_who_keeps_silent_is_shown_the_door(pair: tuple[Pair, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "GREETING_SECONDS", 0.05)
    nodes, port = pair
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        while await reader.read(1 << 16):
            pass
    writer.close()
    nodes.links["b"].send("a", Commit(1, 1, 1))
    await nodes.until(lambda: nodes.got)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        framed(Hello(WIRE_VERSION, "cluster", "stranger", "", 0)) + framed(Promoted(9)),
        framed(Hello(WIRE_VERSION, "cluster", "a", "", 0)) + framed(Promoted(9)),
        framed(Hello(WIRE_VERSION, "cluster", "b", "", 0)) + framed(THEIRS) + framed(Promoted(9)),
    ],
    ids=["another protocol", "an unknown node", "the node itself", "a greeting too many"],
)
async def test_a_stranger_is_shown_the_door_and_the_others_go_on(pair: tuple[Pair, int], data: bytes) -> None:
    nodes, port = pair
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionResetError:
        pass
    writer.close()
    nodes.links["b"].send("a", Commit(1, 1, 1))
    await nodes.until(lambda: nodes.got)
    assert nodes.got == [("b", Commit(1, 1, 1))] and ("b", False) not in nodes.up
