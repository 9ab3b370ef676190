"""What must be so of an AMQP connection when it has taken bytes in (``txobserver.invariants``)."""

from __future__ import annotations

from broker_plugin.amqp.protocol.channel import WAITING_OVERHEAD, AmqpChannel
from broker_plugin.amqp.protocol.client_connection import CACHED_BYTES, ClientConnection
from broker_plugin.amqp.protocol.codec import OVERHEAD, Repeated
from broker_plugin.amqp.protocol.content import PIECE_BYTES
from broker_plugin.amqp.protocol.handshake import AWAIT_HEADER, CLOSED, CLOSING, CONNECTION_TABLE, LEAVING, OPEN
from broker_plugin.amqp.protocol.open_channels import OpenChannels
from broker_plugin.amqp.protocol.settings import FRAME_MIN_SIZE
from broker_plugin.embedded.memory_budget import RECEIVED

REMEMBERED = 1024
"""Publishes, and origins of deliveries, that are remembered for a connection"""
STATES = frozenset((CONNECTION_TABLE.start, *CONNECTION_TABLE.moves.values()))


def check_connection(
    connection: ClientConnection, state: str, opened: OpenChannels, partial: bytes, behind: bool
) -> None:
    """A connection in this state, with its channels, and what has come of a frame; ``behind``: of several."""
    channels, leaving = opened.by_number, opened.last_requests.channels
    session, channel_max = opened.session, opened.limit
    assert state in STATES, f"P12: a connection is {state}"
    assert (session is not None) == (state in (OPEN, LEAVING)), f"P3: a connection is {state}, and holds messages"
    assert state == OPEN or not channels, f"P3: a connection is {state}, and {len(channels)} channels are open"
    assert state == LEAVING or not leaving, f"P3: a connection is {state}, and {len(leaving)} channels go on"
    assert channel_max >= 1, f"P12: a connection may have {channel_max} channels"
    assert len(channels) <= channel_max, f"P12: a connection has {len(channels)} of {channel_max} channels"
    assert connection.frame_max == 0 or connection.frame_max >= FRAME_MIN_SIZE, f"P12: frames of {connection.frame_max}"
    room = connection.frame_max - OVERHEAD if connection.frame_max else 0xFFFFFFFF
    assert connection.max_payload == room, f"P12: payloads of {connection.max_payload} in {connection.frame_max}"
    most = connection.max_payload + OVERHEAD
    ends = len(partial) <= most or connection.held_back or behind
    assert ends, f"P12: {len(partial)} bytes wait for the end of a frame of {most}"
    _check_output(connection)
    _check_weight(connection, partial)
    assert state != AWAIT_HEADER or not connection.waiting_bytes, "P12: frames wait before the first of them"
    known = [*channels.items(), *leaving.items()]
    waiting = sum(len(payload) + WAITING_OVERHEAD for _, each in known for _, payload in each._backlog)
    assert connection.waiting_bytes == waiting, f"P12: {waiting} bytes wait, {connection.waiting_bytes} are counted"
    content = sum(channel._content._held for _, channel in known)
    assert connection.content_bytes == content, f"P12: {content} bytes of bodies, {connection.content_bytes} counted"
    for number, channel in known:
        assert channel.number == number, f"P5: channel {channel.number} goes by {number}"
        assert 1 <= number <= 0xFFFF, f"P5: there is a channel {number}"
        assert channel.connection is connection, f"P5: channel {number} is of another connection"
        check_channel(channel, state)


def _check_output(connection: ClientConnection) -> None:
    size = sum(map(len, connection._output))
    assert connection._output_bytes == size, (
        f"P12: {size} bytes wait to be sent, {connection._output_bytes} are counted"
    )
    limit = connection.settings.output_bytes
    assert size <= limit or not connection.writable, f"P12: {size} bytes wait to be sent, and more may come"
    assert connection.waiting_bytes >= 0, f"P12: {connection.waiting_bytes} bytes wait behind requests"
    assert len(connection.published) <= REMEMBERED, f"P12: {len(connection.published)} publishes are remembered"
    assert len(connection._origins) <= REMEMBERED, f"P12: {len(connection._origins)} origins are remembered"
    if connection.published:
        _check_repeated(next(reversed(connection.published.values())))


def _check_weight(connection: ClientConnection, partial: bytes) -> None:
    """What the node keeps for it is what its holder counts; a broker that serves no more has forgotten both."""
    cached = sum(
        2 * len(payload) + CACHED_BYTES + len(each.head) + len(each.properties)
        for payload, each in connection.published.items()
    )
    cached += sum(2 * len(origin) + CACHED_BYTES for origin in connection._origins.values())
    assert connection.cached_bytes == cached, f"P12: {cached} bytes are remembered, {connection.cached_bytes} counted"
    assert connection.unsent_bytes >= 0, f"P12: {connection.unsent_bytes} bytes are not read by the client"
    holder = connection.holder
    if holder.counts:
        received = len(partial) + connection.waiting_bytes + connection.content_bytes
        assert holder.kinds[RECEIVED] == received, f"P12: {received} bytes have come, {holder.kinds[RECEIVED]} count"
    assert min(holder.kinds) >= 0, f"P12: a client holds {holder.kinds} bytes"
    assert holder.held == sum(holder.kinds), f"P12: a client holds {holder.held} bytes, by kind {holder.kinds}"


def _check_repeated(repeated: Repeated) -> None:
    assert repeated.size >= 0, f"P5: a publish of {repeated.size} bytes is remembered"
    assert repeated.size == 0 or repeated.channel > 0, "P5: a publish is remembered for no channel"
    assert repeated.size == 0 or repeated.head, "P5: a publish is remembered without its head"
    assert not repeated.arguments.immediate, "P5: a publish is remembered that is never carried out"


def check_channel(channel: AmqpChannel, state: str) -> None:
    """The content that is being read, and what waits behind a request."""
    number, content = channel.number, channel._content
    publishing, properties = content.arguments, content.properties
    size = sum(map(len, content._pieces))
    assert content._missing >= 0, f"P5: {content._missing} bytes of a message are missing on channel {number}"
    assert publishing is not None or properties is None, f"P5: channel {number} reads the properties of no publish"
    assert properties is not None or not content._pieces, f"P5: channel {number} reads the body of no publish"
    assert properties is not None or not content._missing, f"P5: channel {number} waits for the body of no publish"
    assert properties is None or content._missing, f"P5: channel {number} keeps a message that is whole"
    kept = 0 if properties is None else 12 + len(properties)
    kept += sum(len(piece) + PIECE_BYTES for piece in content._pieces)
    assert content._held == kept, f"P12: channel {number} keeps {kept} bytes of a message, {content._held} are counted"
    limit = channel.connection.settings.max_message_bytes
    assert size + content._missing <= limit, f"P12: channel {number} reads a message of {size + content._missing} bytes"
    assert all(content._pieces), f"P12: channel {number} keeps pieces of no bytes"
    assert not channel.closing or publishing is None, f"P4: channel {number} has ended, and reads a message"
    assert channel.closing or not channel.inner.closed, f"P3: channel {number} is open, and its work has ended"
    assert not channel._handling, f"P8: channel {number} is in the middle of a frame"
    waits = channel.busy or not channel.connection.writable
    assert waits or not channel._backlog, f"P12: {len(channel._backlog)} frames wait for nothing on channel {number}"
    assert state not in (CLOSING, CLOSED), f"P3: channel {number} is open on a connection that is {state}"
    known = channel.inner.consumers.keys()
    assert channel.inner.closed or known <= channel._prefixes.keys(), f"P5: a delivery of channel {number} has no tag"
