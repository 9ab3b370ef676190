"""What RabbitMQ takes is taken: routing keys and header names that are no UTF-8, timestamps that no date can say."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Channel, Exchange, Queue

from broker_plugin.amqp.protocol.codec import CONTENT_START
from tests.broker_plugin.amqp.conversation import raw
from tests.broker_plugin.amqp.peer import Peer

KEY = b"a.\xff\xfe"
NO_HEADERS = b"\0\0"


def headers(*entries: bytes) -> bytes:
    """Raw properties with these entries as headers."""
    table = b"".join(entries)
    return b"\x20\0" + len(table).to_bytes(4, "big") + table


def stamp(name: bytes, seconds: int) -> bytes:
    return bytes((len(name),)) + name + b"T" + seconds.to_bytes(8, "big")


def short(octets: bytes) -> bytes:
    return bytes((len(octets),)) + octets


def publish(exchange: bytes, key: bytes, properties: bytes = NO_HEADERS, mandatory: bool = False) -> bytes:
    method = b"\0\x3c\0\x28\0\0" + short(exchange) + short(key) + bytes((mandatory,))
    return raw(1, 1, method) + raw(2, 1, CONTENT_START.pack(60, 0, 1) + properties) + raw(3, 1, b"m")


def bind(exchange: bytes, key: bytes = b"", table: bytes = b"") -> bytes:
    arguments = len(table).to_bytes(4, "big") + table
    return raw(1, 1, b"\0\x32\0\x14\0\0" + short(b"q") + short(exchange) + short(key) + b"\0" + arguments)


def peer_with_queue() -> Peer:
    peer = Peer().open()
    peer.send(1, Queue.Declare(queue="q", durable=True), Exchange.Declare(exchange="h", exchange_type="headers"))
    peer.settle()
    peer.frames()
    return peer


def delivered(peer: Peer) -> bytes:
    """All that the queue's only message is delivered as, as it stands on the wire."""
    peer.settle()
    assert not [each for each in peer.frames() if "Close" in each]
    peer.send(1, Basic.Get(queue="q", no_ack=True))
    peer.settle()
    return peer.connection.take_output()


@pytest.mark.parametrize("pieces", [1, 7], ids=["whole", "piece_by_piece"])
@pytest.mark.parametrize(("exchange", "pattern"), [("amq.fanout", ""), ("amq.topic", "a.*"), ("amq.topic", "#")])
def test_routing_key_that_is_no_text(exchange: str, pattern: str, pieces: int) -> None:
    """``routing_key_that_is_no_text``: it finds its queues, and comes out as it came in."""
    peer = peer_with_queue()
    peer.send(1, Queue.Bind(queue="q", exchange=exchange, routing_key=pattern))
    peer.settle()
    data = publish(exchange.encode(), KEY)
    for at in range(0, len(data), len(data) // pieces):
        peer.connection.receive(data[at : at + len(data) // pieces])
    assert short(exchange.encode()) + short(KEY) in delivered(peer)


def test_a_key_that_is_no_text_is_no_other_key() -> None:
    """Neither that which shows it in the log, nor one with another octet."""
    peer = peer_with_queue()
    shown = "a.\ufddf\ufdef\ufddf\ufdee"
    peer.send(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key=shown))
    peer.settle()
    for exchange, key in ((b"amq.direct", KEY), (b"", KEY[:-1] + b"\xfd")):
        peer.connection.receive(publish(exchange, key, mandatory=True))
    peer.settle()
    found = peer.connection.take_output()
    assert found.count(b"NO_ROUTE") == 2 and short(KEY) in found and peer.harness.client().count("q") == 0
    peer.connection.receive(publish(b"amq.direct", shown.encode()))
    assert short(shown.encode()) in delivered(peer)


def test_a_queue_whose_name_has_a_noncharacter() -> None:
    peer = peer_with_queue()
    name = "\ufdd8\ufde0"
    peer.connection.receive(raw(1, 1, b"\0\x32\0\x0a\0\0" + short(name.encode()) + b"\x02\0\0\0\0"))
    peer.settle()
    peer.connection.receive(publish(b"", name.encode()) + publish(b"", b"\x80"))
    peer.settle()
    assert peer.harness.client().count(name) == 1


def test_an_exchange_whose_name_is_no_text_is_not_there() -> None:
    """The channel ends, and not the connection."""
    peer = peer_with_queue()
    peer.connection.receive(publish(b"\xff", b"q"))
    (close,) = peer.frames()
    assert close.startswith("1 Channel.Close reply_code=404")
    peer.send(1, Channel.CloseOk(), Channel.Open())
    peer.connection.receive(publish(b"", b"q"))
    assert short(b"q") in delivered(peer)


@pytest.mark.parametrize(
    "entry",
    [
        b"\x02\xff\xfeI\0\0\0\1",
        stamp(b"t", 1_700_000_000_000_000),
        stamp(b"t", 253_402_300_800_000),
        stamp(b"t", 1 << 63),
        stamp(b"t", (1 << 64) - 1),
        b"\x01n" + b"F\0\0\0\x0b" + stamp(b"\xff", 1 << 63),
    ],
    ids=["name", "microseconds", "year_10000", "middle", "largest", "nested"],
)
def test_header_that_no_text_and_no_date_can_say(entry: bytes) -> None:
    """``header_that_no_text_and_no_date_can_say``: it is kept as it is, and a headers exchange compares it."""
    peer = peer_with_queue()
    peer.connection.receive(publish(b"", b"q", headers(entry)))
    assert headers(entry) in delivered(peer)
    peer.connection.receive(bind(b"h", table=b"\x07x-matchS\0\0\0\3all" + entry))
    peer.settle()
    assert [each.split(" ")[1] for each in peer.frames()] == ["Queue.BindOk"]
    peer.connection.receive(publish(b"h", b"", headers(entry[:-1] + bytes((entry[-1] ^ 1,)))))
    peer.connection.receive(publish(b"h", b"", headers(entry, b"\x05otherV")))
    assert headers(entry, b"\x05otherV") in delivered(peer)
    assert peer.harness.client().count("q") == 0, "another value of the header is another header"


def test_what_is_bound_with_such_arguments_is_unbound_with_them() -> None:
    peer = peer_with_queue()
    entry = b"\x02\xff\xfe" + stamp(b"", 1 << 63)[1:]
    peer.send(1, Exchange.Declare(exchange="kept", exchange_type="headers", durable=True))
    peer.settle()
    peer.connection.receive(bind(b"kept", table=entry))
    peer.settle()
    method = b"\0\x32\0\x32\0\0" + short(b"q") + short(b"kept") + b"\0" + len(entry).to_bytes(4, "big") + entry
    peer.connection.receive(raw(1, 1, method) + publish(b"kept", b"", headers(entry)))
    peer.settle()
    assert [each.split(" ")[1] for each in peer.frames()] == ["Exchange.DeclareOk", "Queue.BindOk", "Queue.UnbindOk"]
    assert peer.harness.client().count("q") == 0


def test_other_methods_take_text_only() -> None:
    """As with RabbitMQ: 501."""
    peer = peer_with_queue()
    peer.connection.receive(bind(b"amq.direct", KEY))
    (close,) = peer.frames()
    assert close.startswith("0 Connection.Close reply_code=501")
