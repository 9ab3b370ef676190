"""Conversations of a client as frames, to be sent as they are or bent; and what must hold whatever was sent."""

from __future__ import annotations

from typing import Any

from pamqp import body, commands, frame, header, heartbeat
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx

from broker_plugin.amqp.protocol.codec import FRAME_END, FRAME_START, OVERHEAD, encode_open_ok
from broker_plugin.amqp.protocol.handshake import CLOSING, OPEN
from broker_plugin.embedded.errors import NAMES, SOFT
from tests.broker_plugin.amqp.peer import HEADER, Peer, publish
from tests.broker_plugin.amqp.raw_client import show

CLOSE = b"\x00\x0a\x00\x32"
"""connection.close"""


def one(value: Any, channel: int = 1) -> bytes:
    """One frame."""
    return frame.marshal(value, channel)


def raw(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame of anything."""
    return FRAME_START.pack(kind, channel, len(payload)) + payload + bytes((FRAME_END,))


HANDSHAKE = [
    HEADER,
    one(commands.Connection.StartOk({"capabilities": {"consumer_cancel_notify": True}}, "PLAIN", "\0guest\0guest"), 0),
    one(commands.Connection.TuneOk(2047, 4096, 0), 0),
    one(commands.Connection.Open("/"), 0),
]

SESSION = [
    *(one(Channel.Open(), number) for number in (1, 2, 3)),
    one(Queue.Declare(queue="q", durable=True)),
    one(Queue.Declare(queue="r", arguments={"x-other": 5, "nested": {"list": [1, "two", {"three": None}]}})),
    one(Exchange.Declare(exchange="h", exchange_type="headers", durable=True)),
    one(Queue.Bind(queue="q", exchange="h", arguments={"x-match": "any", "colour": "red"})),
    one(Confirm.Select()),
    publish("q", b"small"),
    publish("r", b"x" * 9000),
    one(Basic.Publish(0, "h", "")),
    one(header.ContentHeader(0, 3, Basic.Properties(headers={"colour": "red", "depth": [[[]]]}, message_id="m"))),
    one(body.ContentBody(b"abc")),
    one(Basic.Get(queue="r")),
    one(Basic.Reject(1, True)),
    one(heartbeat.Heartbeat(), 0),
    one(Queue.Declare(queue="s", auto_delete=True), 2),
    one(Basic.Qos(0, 2), 2),
    one(Basic.Consume(queue="s", consumer_tag="stays"), 2),
    one(Basic.Consume(queue="s", consumer_tag="goes", no_ack=True), 2),
    one(Basic.Cancel("goes"), 2),
    publish("s", b"delivered", channel=2),
    one(Basic.Ack(0, True), 2),
    one(Basic.Nack(0, True, True), 2),
    one(Tx.Select(), 3),
    publish("s", b"together", channel=3),
    one(Tx.Commit(), 3),
    one(Basic.Recover(True), 3),
    one(Tx.Rollback(), 3),
    one(Queue.Unbind(queue="q", exchange="h", arguments={"x-match": "any", "colour": "red"})),
    one(Queue.Purge(queue="q")),
    one(Queue.Delete(queue="r")),
    one(Exchange.Delete(exchange="h")),
    one(Channel.Close(200, "bye", 0, 0)),
]


def frames_of(data: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, channel and payload of each frame of what a broker sent; fails unless it is frames and nothing else."""
    found = []
    while data:
        kind, channel, size = FRAME_START.unpack_from(data)
        assert data[7 + size] == FRAME_END, "the broker sent something that is no frame"
        found.append((kind, channel, data[7 : 7 + size]))
        data = data[size + OVERHEAD :]
    return found


def sound(peer: Peer, output: bytes) -> None:
    """What must hold after any bytes: proper frames came back, and nothing is kept beyond its limit.

    ``output`` is everything that the broker has sent so far.
    """
    connection = peer.connection
    if output.endswith(HEADER):  # the broker's whole answer to another protocol
        output = output[: -len(HEADER)]
    sent = frames_of(output)
    closes = [at for at, (_, channel, payload) in enumerate(sent) if not channel and payload.startswith(CLOSE)]
    if connection.state == CLOSING:
        assert len(closes) == 1, "a connection that closes says so once"
    if closes:
        code = int.from_bytes(sent[closes[0]][2][4:6], "big")
        assert code in NAMES and (code not in SOFT or code == 403), show((0, frame.unmarshal(raw(*sent[closes[0]]))[2]))
        assert all(not channel for _, channel, _ in sent[closes[0] + 1 :]), "nothing follows connection.close"
    assert len(connection._partial) < connection.max_payload + OVERHEAD
    assert len(connection.channels.by_number) <= connection.settings.channel_max
    assert len(connection.published) <= 1024 and len(connection.passed_properties) <= 256
    working = [*connection.channels.by_number.values(), *connection.channels.last_requests.channels.values()]
    assert connection.waiting_bytes == 0 or any(channel.busy for channel in working)


def finish(peer: Peer, in_step: bool) -> None:
    """A connection that is open goes on, one that closes ends with close-ok; in the end the broker holds nothing.

    ``in_step``: the last byte that was sent ended a frame.
    """
    connection = peer.connection
    if in_step and connection.state == OPEN:
        number = next(n for n in range(1, 2047) if n not in connection.channels.by_number)
        connection.receive(one(Channel.Open(), number))
        assert connection.take_output() == encode_open_ok(number)
    elif in_step and connection.state == CLOSING:
        connection.receive(one(commands.Connection.CloseOk(), 0))
        assert connection.ended
    connection.end()
    peer.settle()
    broker = peer.harness.broker
    assert not broker._sessions and connection.waiting_bytes == 0
    for queue in broker.topology.queues.values():
        assert queue.owner is None and not queue.consumers and not queue._getters and not queue._out
