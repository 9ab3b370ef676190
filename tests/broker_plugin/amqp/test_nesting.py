"""Tables within tables, wherever a client can send one: refused beyond a depth, and no error of ours."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, encode, frame, header
from pamqp.commands import Basic, Channel, Exchange, Queue

from broker_plugin.embedded.field_table import MAX_DEPTH
from tests.broker_plugin.amqp.peer import HEADER, Peer

MOST = 550
"""Tables in a frame before the connection is tuned"""


def nested(depth: int, kind: str = "F") -> bytes:
    """An entry "a" of tables (or arrays) within each other."""
    inner = b""
    for _ in range(depth):
        table = len(inner).to_bytes(4, "big") + inner
        inner = (b"\x01aF" if kind == "F" else b"A") + table
    return inner if kind == "F" else b"\x01a" + inner


def with_table(method: Any, entry: bytes, channel: int) -> bytes:
    """A method whose only table is empty, with this entry in it."""
    data = frame.marshal(method, channel)
    at = data.rindex(b"\0\0\0\0", 0, len(data) - 1)
    payload = data[7:at] + len(entry).to_bytes(4, "big") + entry + data[at + 4 : -1]
    return data[:3] + len(payload).to_bytes(4, "big") + payload + b"\xce"


@pytest.mark.parametrize("kind", ["F", "A"])
@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MOST])
def test_in_the_properties_of_a_client(kind: str, depth: int) -> None:
    peer = Peer()
    peer.connection.receive(HEADER)
    peer.frames()
    entry = nested(depth, kind)
    start_ok = frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
    payload = start_ok[7:11] + len(entry).to_bytes(4, "big") + entry + start_ok[15:-1]
    peer.connection.receive(start_ok[:3] + len(payload).to_bytes(4, "big") + payload + b"\xce")
    (answer,) = peer.frames()
    assert ("Connection.Tune" if depth < MAX_DEPTH else "reply_code=501") in answer


@pytest.mark.parametrize("depth", [MAX_DEPTH, 400])
def test_in_a_login(depth: int) -> None:
    peer = Peer()
    peer.connection.receive(HEADER)
    peer.frames()
    response = (encode.field_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:] + nested(depth)).decode("latin-1")
    can = {"capabilities": {"authentication_failure_close": True}}
    peer.send(0, commands.Connection.StartOk(can, "AMQPLAIN", response))
    assert "reply_code=403" in peer.frames()[0]


@pytest.mark.parametrize("kind", ["F", "A"])
@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, 15_000])
@pytest.mark.parametrize(
    "method",
    [
        Queue.Declare(queue="q", durable=True),
        Exchange.Declare(exchange="x", durable=True),
        Queue.Bind(queue="there", exchange="amq.headers"),
        Basic.Consume(queue="there", consumer_tag="c"),
    ],
    ids=lambda method: type(method).__qualname__,
)
def test_in_arguments(method: Any, depth: int, kind: str) -> None:
    peer = Peer().open(frame_max=131072)
    peer.send(1, Queue.Declare(queue="there"))
    peer.frames()
    peer.connection.receive(with_table(method, nested(depth, kind), 1))
    peer.settle()
    (answer,) = peer.frames()
    assert ("Ok" if depth < MAX_DEPTH else "reply_code=501") in answer


@pytest.mark.parametrize("kind", ["F", "A"])
@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, 15_000])
def test_in_the_headers_of_a_message(depth: int, kind: str) -> None:
    peer = Peer().open(frame_max=131072)
    matches = {"x-match": "any", "a": 1}
    peer.send(1, Queue.Declare(queue="q"), Queue.Bind(queue="q", exchange="amq.headers", arguments=matches))
    peer.settle()
    peer.frames()
    entry = nested(depth, kind)
    content = frame.marshal(header.ContentHeader(0, 0, Basic.Properties()), 1)
    payload = content[7:19] + b"\x20\x00" + len(entry).to_bytes(4, "big") + entry
    peer.send(1, Basic.Publish(0, "amq.headers", ""))
    peer.connection.receive(content[:3] + len(payload).to_bytes(4, "big") + payload + b"\xce")
    peer.send(1, Channel.Flow(True))
    peer.settle()
    (answer,) = peer.frames()
    assert ("Channel.FlowOk" if depth < MAX_DEPTH else "reply_code=502") in answer
