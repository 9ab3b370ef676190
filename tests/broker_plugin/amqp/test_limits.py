"""What a client can make the broker keep, and how deep it can make it dig."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic, Exchange, Queue

from broker_plugin.amqp.protocol.sasl import read_credentials
from tests.broker_plugin.amqp.conversation import HANDSHAKE, SESSION, finish, one, raw, sound
from tests.broker_plugin.amqp.peer import HEADER, Peer, Wire, publish
from tests.support.examples import examples

pytestmark = pytest.mark.fuzz

DEPTHS = [1, 20, *range(97, 103), *range(380, 520), 2000]


def nested(depth: int, arrays: bool, inner: bytes = b"V") -> bytes:
    """A field table with one value, so many tables or arrays deep."""
    value = inner
    for _ in range(depth):
        value = b"A" + sized(value) if arrays else b"F" + sized(b"\x01a" + value)
    return sized(b"\x01a" + value)


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def content(properties: bytes, size: int) -> bytes:
    return raw(2, 1, b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + properties)


@pytest.mark.parametrize("arrays", [True, False])
class TestDepth:
    """Tables within tables: accepted everywhere or refused in order, whichever component looks into them.

    Every depth around the limits is tried, ours and the interpreter's own.
    """

    def test_of_arguments(self, arrays: bool) -> None:
        declare = b"\x00\x32\x00\x0a\x00\x00" + short(b"q") + b"\x02"
        bind = b"\x00\x32\x00\x14\x00\x00" + short(b"q") + short(b"amq.headers") + short(b"") + b"\x00"
        for depth in DEPTHS:
            peer = Peer().open(frame_max=131072)
            for method in (declare, bind):
                peer.connection.receive(raw(1, 1, method + nested(depth, arrays)))
            peer.settle()
            sound(peer, peer.connection.take_output())
            finish(peer, True)

    def test_of_headers_that_are_looked_into(self, arrays: bool) -> None:
        for depth in DEPTHS:
            peer = Peer().open(frame_max=131072)
            properties = b"\x20\x00" + nested(depth, arrays)
            peer.connection.receive(one(Basic.Publish(0, "amq.headers", "")) + content(properties, 0))
            output = peer.connection.take_output()
            sound(peer, output)
            assert (b"SYNTAX_ERROR" in output) == (depth >= 100)
            finish(peer, True)

    def test_before_the_login(self, arrays: bool) -> None:
        none = sized(b"")
        for depth in range(1, 580):
            table = nested(depth, arrays)
            for properties, mechanism, response in ((table, b"PLAIN", b"\0\0"), (none, b"AMQPLAIN", table[4:])):
                start_ok = b"\x00\x0a\x00\x0b" + properties + short(mechanism) + sized(response) + short(b"en_US")
                peer = Peer()
                peer.connection.receive(HEADER)
                peer.connection.receive(raw(1, 0, start_ok))
                sound(peer, peer.connection.take_output())
                finish(peer, False)


@examples(200)
@given(
    st.binary(max_size=60)
    | st.builds(
        lambda t, d: short(b"LOGIN") + t + d,
        st.sampled_from([bytes((c,)) for c in b"tbBsuIilLfdDSATFVx\0"]),
        st.binary(max_size=20),
    )
)
def test_credentials_of_any_bytes(response: bytes) -> None:
    for mechanism in ("PLAIN", "AMQPLAIN"):
        credentials = read_credentials(mechanism, response)
        assert credentials is None or all(isinstance(each, str) for each in credentials)


def test_a_long_chain_of_exchanges_that_go_by_themselves() -> None:
    peer = Peer().open(frame_max=131072)
    peer.send(1, Queue.Declare(queue="q"))
    length = 1500
    for number in range(length):
        peer.send(1, Exchange.Declare(exchange=f"x{number}", exchange_type="fanout", auto_delete=True))
        if number:
            peer.send(1, Exchange.Bind(source=f"x{number}", destination=f"x{number - 1}"))
    peer.send(1, Queue.Bind(queue="q", exchange="x0"))
    assert f"x{length - 1}" in peer.harness.broker.topology.exchanges
    peer.connection.take_output()
    peer.send(1, Queue.Delete(queue="q"))
    assert peer.frames() == ["1 Queue.DeleteOk message_count=0"]
    assert not any(name.startswith("x") for name in peer.harness.broker.topology.exchanges)


class TestGrowth:
    """Frames without end that lead to nothing leave nothing behind."""

    def test_body_frames_without_a_body(self) -> None:
        peer = Peer().open()
        peer.connection.receive(one(Basic.Publish(0, "", "q")) + content(b"\x00\x00", 2))
        peer.connection.receive(raw(3, 1, b"") * 1000)
        channel = peer.connection.channels.by_number[1]
        assert len(channel._content._pieces) == 0
        peer.connection.receive(raw(3, 1, b"a") + raw(3, 1, b"") + raw(3, 1, b"b"))
        assert channel._content.arguments is None and peer.frames() == []

    def test_empty_frames_behind_a_request(self) -> None:
        peer = Peer(waiting_bytes=10_000).open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.connection.receive(raw(3, 1, b"") * 1000)
        assert peer.connection.intake.congested, "frames cost something even if there is nothing in them"

    def test_consumers_that_come_and_go(self) -> None:
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q"))
        for number in range(100):
            peer.send(1, Basic.Consume(queue="q", consumer_tag=f"c{number}"), Basic.Cancel(f"c{number}"))
        peer.send(1, Basic.Consume(queue="q", consumer_tag="c"), Queue.Delete(queue="q"))
        peer.settle()
        assert not peer.connection.channels.by_number[1]._prefixes

    def test_gets_of_a_client_that_reads_nothing(self) -> None:
        """What waits behind a request is not carried out for a client that does not take what was sent to it."""
        peer = Peer(output_bytes=10_000).open()
        peer.send(1, Queue.Declare(queue="q"))
        peer.connection.receive(publish("q", b"x" * 1000) * 200)
        peer.send(1, *[Basic.Get(queue="q", no_ack=True) for _ in range(200)])
        peer.settle()
        assert peer.connection._output_bytes < 20_000
        received = 0
        while data := peer.connection.take_output():
            received += data.count(b"x" * 1000)
            peer.connection.set_writable(True)
            peer.settle()
            assert peer.connection._output_bytes < 20_000
        assert received == 200

    def test_caches(self) -> None:
        peer = Peer().open()
        for number in range(3000):
            peer.send(1, Basic.Publish(0, "", f"nobody {number}"))
            peer.connection.receive(content(b"\x00\x80" + short(b"%d" % number), 0))
        connection = peer.connection
        assert len(connection.published) <= 1024 and len(connection.passed_properties) <= 256
        assert len(peer.harness.broker.topology.routes) <= 10_000

    def test_connections_that_come_and_go(self) -> None:
        """Nothing is kept of them; a broker has coarsely the same memory after many as after a few."""
        harness = Peer().harness
        stream = b"".join([*HANDSHAKE, *SESSION, one(Queue.Delete(queue="q"), 2)])

        def play(times: int) -> int:
            for _ in range(times):
                peer = Peer(harness)
                gone.append(weakref.ref(peer.wire))
                peer.connection.receive(stream)
                peer.settle()
                peer.connection.end()
                peer.settle()
            del peer
            harness.ledger.log.clear()
            gc.collect()
            assert all(each() is None for each in gone), "a connection is kept"
            return tracemalloc.get_traced_memory()[0]

        gone: list[weakref.ref[Wire]] = []  # held by its connection
        tracemalloc.start()
        try:
            before = play(50)
            assert play(100) - before < 300_000
        finally:
            tracemalloc.stop()
