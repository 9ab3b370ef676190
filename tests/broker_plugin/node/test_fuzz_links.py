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
from broker_plugin.node.links import Links, PeerAddress
from broker_plugin.node.peer_protocol import MAX_HELLO, MAX_MESSAGE, PeerProtocol
from ha.messages.alarms import AlarmsInForce
from ha.messages.election import Probe, Promoted
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.proof import MAX_UNPROVEN, PEER, DiallerProof, ListenerProof
from ha.messages.seals import ANNOUNCED, BROKEN
from ha.messages.stream import Commit
from ha.messages.wire import encode
from tests.support.examples import examples
from tests.support.far_end import CREDENTIALS, SECRET, SECRETS, FarEnd, framed
from tests.support.guards import strict_guard
from tests.support.messages import MESSAGES

pytestmark = pytest.mark.fuzz

OURS = Hello(WIRE_VERSION, "cluster", "a", "127.0.0.1", 1)
THEIRS = Hello(WIRE_VERSION, "cluster", "b", "127.0.0.1", 2)
EVERY = st.sampled_from([*MESSAGES, AlarmsInForce(True, False)])
CUTS = st.lists(st.integers(0, 1 << 16), max_size=8)


class Transport:
    """Says whether the connection was ended."""

    def get_extra_info(self, name: str) -> Any:
        return None

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


class Listener:
    """A connection that a peer made to us; ``got`` is what came of it, and ``far`` the peer.

    Nonces are always the same, so that what one listener is told means the same to another one.
    """

    def __init__(self, proven: bool = True) -> None:
        self.got: list[tuple[str, Any]] = []
        self.transport = Transport()
        greeted = lambda protocol, hello: self.got.append(("greeted", hello))  # noqa: E731
        proof = ListenerProof(SECRETS, b"l" * 32)
        self.protocol = PeerProtocol(
            strict_guard(),
            OURS,
            proof,
            ["b"],
            greeted,
            lambda *message: self.got.append(message),
            lambda protocol: None,
            on_alarms=lambda peer, connection, alarms: self.got.append((peer, alarms)),
        )
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]
        self.far = FarEnd(DiallerProof(SECRET, PEER, b"d" * 32))
        if proven:
            self.far.meet(self.protocol, self.transport)

    def receive(self, data: bytes, cuts: list[int]) -> list[tuple[str, Any]]:
        edges = [0, *sorted(each % (len(data) + 1) for each in cuts), len(data)]
        for a, b in pairwise(edges):
            if not self.transport.aborted:
                self.protocol.data_received(data[a:b])
                if self.protocol.peer is None:
                    limit = MAX_UNPROVEN if self.protocol.session is None else MAX_HELLO
                    assert len(self.protocol._buffer) <= limit + 24 + (b - a)
        assert not self.got or self.got[0][0] == "greeted", "nothing is taken from a peer that has not greeted"
        return self.got


@examples(300)
@given(st.binary(max_size=200), st.booleans(), CUTS)
def test_any_bytes(data: bytes, proven: bool, cuts: list[int]) -> None:
    """Before both have proved themselves, and behind that outside the seals: nothing is taken."""
    one, other = Listener(proven), Listener(proven)
    assert one.receive(data, cuts) == other.receive(data, []) == []
    assert one.transport.aborted == other.transport.aborted


@examples(300)
@given(st.lists(st.binary(max_size=200), max_size=4), st.sampled_from([(), (THEIRS,)]), CUTS)
def test_any_bytes_of_who_knows_the_secret(data: list[bytes], before: tuple[Hello, ...], cuts: list[int]) -> None:
    one, other = Listener(), Listener()
    stream = one.far.say(*before, *data)
    assert one.receive(stream, cuts) == other.receive(stream, [])
    assert one.transport.aborted == other.transport.aborted


@examples(200)
@given(st.lists(EVERY.filter(lambda each: not isinstance(each, Hello)), max_size=6), st.integers(0, 1 << 20), CUTS)
def test_a_flipped_bit(messages: list[Any], bit: int, cuts: list[int]) -> None:
    """What stood before it is taken, and nothing from there on."""
    one, other, unspoilt = Listener(), Listener(), Listener()
    stream = bytearray(one.far.say(THEIRS, *messages))
    whole = unspoilt.receive(bytes(stream), [])
    bit %= len(stream) * 8
    stream[bit // 8] ^= 1 << bit % 8
    got = one.receive(bytes(stream), cuts)
    assert got == other.receive(bytes(stream), []) == whole[: len(got)] and len(got) < len(whole)


@examples(100)
@given(st.lists(EVERY.filter(lambda each: not isinstance(each, Hello)), max_size=6), CUTS)
def test_proper_messages_in_any_pieces(messages: list[Any], cuts: list[int]) -> None:
    listener = Listener()
    got = listener.receive(listener.far.say(THEIRS, *messages), cuts)
    assert got == [("greeted", THEIRS), *(("b", each) for each in messages)]
    assert not listener.transport.aborted and not listener.protocol._buffer


def nested(arrays: int) -> bytes:
    """msgpack of arrays within arrays."""
    return b"\x91" * arrays + b"\x90"


def and_nested(message: object, arrays: int) -> bytes:
    """A message of some later version, with a field behind all that we know."""
    encoded = encode(message)
    return bytes([encoded[0] + 1]) + encoded[1:] + nested(arrays)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff", "a message of 4294967295 bytes before it proves who it is"),
        ((MAX_UNPROVEN + 1).to_bytes(4, "big"), "before it proves who it is"),
        (framed(nested(3900)), "a message of 3901 bytes before it proves who it is"),
        (framed(nested(200)), "it greets without a proof, as versions before 0.1.0 do"),
        (framed(encode(THEIRS)), "it greets without a proof, as versions before 0.1.0 do"),
        (framed(b"\x93\x64\x01\xa1c"), "it greets without a proof, as versions before 0.1.0 do"),
        (framed(b""), "does not prove who it is"),
        (framed(b"txha"), "as another version of txha does"),
        (framed(b"txha\x02" + bytes(65)), "as another version of txha does"),
        (framed(b"txha\x01" + bytes(64)), "its proof has 69 bytes, not 70"),
        (framed(b"txha\x01" + bytes(65)), "it does not know the secret of this cluster (of no purpose)"),
        (framed(b"txha\x01\x01" + bytes(64)), "it does not know the secret of this cluster (peer.secret)"),
        (framed(b"txha\x01\x02" + bytes(64)), "it does not know the secret of this cluster (peer.read_secret)"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes before it proves who it is"),
        (b"\x16\x03\x01\x02\x00", "it begins TLS, and this node speaks none (peer.tls)"),
    ],
)
def test_a_stranger_is_refused_in_words(data: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener(proven=False)
    listener.receive(data, [])
    assert listener.transport.aborted and not listener.got
    (line,) = caplog.messages
    assert "closing the connection with an unknown peer" in line and reason in line and "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([Probe(1, 1)], "does not greet"),
        ([nested(3900)], "does not greet"),
        ([and_nested(THEIRS, 3900)], "nested too deep"),
        ([Hello(WIRE_VERSION + 1, "cluster", "b", "", 0)], "version 5: upgrade node a"),
        ([Hello(WIRE_VERSION, "another", "b", "", 0)], "belongs to cluster another"),
        ([Hello(WIRE_VERSION, "cluster", "b", "", 0, "feed")], "another cluster that is also called cluster"),
        ([Hello(WIRE_VERSION, "cluster", "c", "", 0)], "it is c, not b"),
        ([bytes(MAX_HELLO + 1)], f"a message of {MAX_HELLO + 1} bytes"),
        ([THEIRS, THEIRS], "greets twice"),
        ([THEIRS, b"\xc1"], "malformed"),
        ([THEIRS, and_nested(Probe(1, 1), 3900)], "nested too deep"),
    ],
)
def test_what_is_refused_is_refused_in_words(said: list[Any], reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also of one who knows the secret."""
    listener = Listener()
    listener.receive(listener.far.say(*said), [])
    assert listener.transport.aborted
    (line,) = caplog.messages
    assert "closing the connection" in line and reason in line
    assert [kind for kind, _ in listener.got] in ([], ["greeted"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [((MAX_MESSAGE + 1).to_bytes(4, "big"), "bytes"), (ANNOUNCED.to_bytes(4, "big") + bytes(20), BROKEN)],
)
def test_a_length_that_was_changed_on_the_way_makes_nothing_wait(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A long length has a tag of its own, which is looked at before more is kept."""
    listener = Listener()
    listener.receive(listener.far.say(THEIRS) + data, [])
    assert listener.transport.aborted and reason in caplog.text and not listener.protocol._buffer


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
                CREDENTIALS,
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
    "said",
    [
        [Hello(WIRE_VERSION, "cluster", "stranger", "", 0), Promoted(9)],
        [Hello(WIRE_VERSION, "cluster", "a", "", 0), Promoted(9)],
        [Hello(WIRE_VERSION, "cluster", "b", "", 0), THEIRS, Promoted(9)],
        [b"\x93\x00", Promoted(9)],
    ],
    ids=["an unknown node", "the node itself", "a greeting too many", "no greeting"],
)
@pytest.mark.parametrize("proves", [True, False])
async def test_a_stranger_is_refused_and_the_others_go_on(
    pair: tuple[Pair, int], said: list[Any], proves: bool
) -> None:
    nodes, port = pair
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if proves:
        writer.write((await FarEnd().meet_there(reader, writer)).say(*said))
    else:
        writer.write(b"".join(framed(each if isinstance(each, bytes) else encode(each)) for each in said))
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionResetError:
        pass
    writer.close()
    nodes.links["b"].send("a", Commit(1, 1, 1))
    await nodes.until(lambda: nodes.got)
    assert nodes.got == [("b", Commit(1, 1, 1))] and ("b", False) not in nodes.up
