"""The fast paths say what pamqp says."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header, heartbeat

from broker_plugin.amqp.protocol import codec
from broker_plugin.amqp.protocol.properties import PropertyCheck
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.message_headers import OFFSET, headers_of, priority_of, with_offset
from broker_plugin.embedded.unsupported import Unsupported
from txobserver.octets import as_sent, octets_of, text_of

NAMES = st.text("abcXYZ019-_.:@#,/+ ", max_size=127)
KEYS = st.text(max_size=60)
CHANNELS = st.integers(1, 65535)
TAGS = st.integers(0, (1 << 63) - 1)
BODIES = st.binary(max_size=300) | st.binary(min_size=50, max_size=300)
TEXTS = st.text(min_size=1, max_size=40)
HEADERS = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=9)
"""Names without noncharacters, which are read otherwise (``octets``)"""
VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=9), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(HEADERS, inner, max_size=3)),
    max_leaves=6,
)
PROPERTIES = st.builds(
    commands.Basic.Properties,
    content_type=st.none() | TEXTS,
    content_encoding=st.none() | TEXTS,
    headers=st.none() | st.dictionaries(HEADERS, VALUES, min_size=1, max_size=4),
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | TEXTS,
    reply_to=st.none() | TEXTS,
    expiration=st.none() | st.integers(0, 10**9).map(str),
    message_id=st.none() | TEXTS,
    timestamp=st.none() | st.integers(0, 1 << 31).map(lambda s: datetime.datetime.fromtimestamp(s, datetime.UTC)),
    message_type=st.none() | TEXTS,
    app_id=st.none() | TEXTS,
)


def raw(properties: commands.Basic.Properties) -> bytes:
    """Properties as they stand in a content header, from the flags on."""
    return frame.marshal(header.ContentHeader(0, 0, properties), 1)[7 + 12 : -1]


def decoded(properties: bytes) -> commands.Basic.Properties:
    """Raw properties as pamqp reads them."""
    content = header.ContentHeader()
    content.unmarshal(codec.CONTENT_START.pack(codec.BASIC, 0, 0) + properties)
    return content.properties


def frames(data: bytes) -> list[Any]:
    """What pamqp reads: (channel, frame) one after the other."""
    found = []
    while data:
        size, channel, value = frame.unmarshal(data)
        found.append((channel, value))
        data = data[size:]
    return found


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and list(one) == list(other)


@given(NAMES, KEYS, st.booleans(), st.booleans())
def test_publish(exchange: str, key: str, mandatory: bool, immediate: bool) -> None:
    data = frame.marshal(commands.Basic.Publish(0, exchange, key, mandatory, immediate), 7)
    found = codec.decode_publish(data[7:-1])
    assert found._replace(routing_key=as_sent(found.routing_key)) == (exchange, key, mandatory, immediate)


@given(st.binary(max_size=40))
def test_any_bytes_as_publish(data: bytes) -> None:
    """Either it decodes, as pamqp would have it where the key is text, or it is refused in order."""
    payload = codec.PUBLISH + data
    try:
        exchange, key, _, _ = codec.decode_publish(payload)
    except AmqpError as error:
        assert error.hard or error.code == 404
        return
    try:
        method = codec.decode_method(payload)
    except AmqpError:
        with pytest.raises(UnicodeDecodeError):
            octets_of(key).decode()
        return
    assert (method.exchange, method.routing_key) == (exchange, as_sent(key))  # type: ignore[attr-defined]


@given(TAGS, st.booleans())
def test_ack(tag: int, multiple: bool) -> None:
    data = frame.marshal(commands.Basic.Ack(tag, multiple), 7)
    assert codec.decode_ack(data[7:-1]) == (tag, multiple)


@given(CHANNELS, TEXTS, TAGS, st.booleans(), NAMES, KEYS, PROPERTIES, BODIES, st.sampled_from([0, 20, 60, 4096]))
def test_delivery(
    channel: int,
    consumer: str,
    tag: int,
    redelivered: bool,
    exchange: str,
    key: str,
    properties: commands.Basic.Properties,
    data: bytes,
    frame_max: int,
) -> None:
    origin = codec.encode_origin(exchange, text_of(key.encode()))
    encoded = codec.encode_delivery(
        channel, codec.deliver_prefix(consumer), tag, redelivered, origin, (raw(properties), data), frame_max
    )
    deliver, head, *bodies = frames(encoded)
    assert all(number == channel for number, _ in (deliver, head, *bodies))
    assert same(deliver[1], commands.Basic.Deliver(consumer, tag, redelivered, exchange, key))
    assert head[1].body_size == len(data) and raw(head[1].properties) == raw(properties)
    assert b"".join(each.value for _, each in bodies) == data
    if frame_max:
        assert all(len(each.value) + 8 <= frame_max for _, each in bodies)


@given(CHANNELS, PROPERTIES, BODIES)
def test_content_in_one_frame(channel: int, properties: commands.Basic.Properties, data: bytes) -> None:
    expected = frame.marshal(header.ContentHeader(0, len(data), properties), channel)
    if data:
        expected += frame.marshal(body.ContentBody(data), channel)
    assert codec.encode_content(channel, raw(properties), data, 131072) == expected


@given(CHANNELS, TAGS, st.booleans(), NAMES, KEYS, st.integers(0, (1 << 32) - 1))
def test_answers(channel: int, tag: int, flag: bool, exchange: str, key: str, number: int) -> None:
    origin = codec.short_string(exchange) + codec.short_string(key)
    for encoded, method in (
        (codec.encode_confirm(channel, tag, flag, True), commands.Basic.Ack(tag, flag)),
        (codec.encode_confirm(channel, tag, flag, False), commands.Basic.Nack(tag, flag, False)),
        (
            codec.encode_get_ok(channel, tag, flag, origin, number),
            commands.Basic.GetOk(tag, flag, exchange, key, number),
        ),
        (codec.encode_return(channel, 312, "NO_ROUTE", origin), commands.Basic.Return(312, "NO_ROUTE", exchange, key)),
        (codec.encode_declare_ok(channel, exchange, number, 3), commands.Queue.DeclareOk(exchange, number, 3)),
    ):
        assert encoded == frame.marshal(method, channel)


def test_constants() -> None:
    assert codec.encode_open_ok(5) == b"\x01\x00\x05\x00\x00\x00\x08\x00\x14\x00\x0b\x00\x00\x00\x00\xce"
    assert frame.marshal(heartbeat.Heartbeat(), 0) == codec.HEARTBEAT_FRAME


@pytest.mark.parametrize("text", ["é" * 200, "x" * 256, "ok"])
def test_short_strings_are_cut_between_characters(text: str) -> None:
    data = codec.short_string(text)
    assert data[0] == len(data) - 1 <= 255
    assert text.startswith(data[1:].decode())


def check(properties: bytes) -> None:
    """As of one message of a client; what has no effect here is accepted."""
    PropertyCheck("guest", Unsupported(lambda kind, name, what: None))(properties, "")


class TestProperties:
    """What is checked when a message arrives."""

    @given(PROPERTIES)
    def test_the_priority_is_read_wherever_it_stands(self, properties: commands.Basic.Properties) -> None:
        assert priority_of(raw(properties)) == (decoded(raw(properties)).priority or 0)

    @given(PROPERTIES)
    def test_what_pamqp_writes_passes(self, properties: commands.Basic.Properties) -> None:
        check(raw(properties))
        assert dict(headers_of(raw(properties))) == (decoded(raw(properties)).headers or {})

    @given(PROPERTIES, st.integers(0, (1 << 63) - 1))
    def test_a_place_is_one_more_header(self, properties: commands.Basic.Properties, place: int) -> None:
        found = decoded(with_offset(raw(properties), place))
        assert found.headers == {**(properties.headers or {}), OFFSET: place}
        found.headers = properties.headers
        assert raw(found) == raw(decoded(raw(properties)))

    @given(PROPERTIES, st.data())
    def test_what_is_cut_does_not(self, properties: commands.Basic.Properties, data: st.DataObject) -> None:
        whole = raw(properties)
        cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
        with pytest.raises(AmqpError):
            check(cut)
        with pytest.raises(AmqpError):
            check(whole + b"x")

    @given(st.binary(max_size=30))
    def test_any_bytes(self, data: bytes) -> None:
        try:
            check(data)
        except AmqpError:
            return
        headers_of(data)

    def test_other_properties_may_be_any_bytes(self) -> None:
        binary = b"\x24\x00" + b"\x00\x00\x00\x00" + b"\x02\xff\xfe"
        check(binary)
        assert headers_of(binary) == {}


LONG_METHODS = [
    commands.Tx.Select(),
    commands.Basic.Publish(exchange="", routing_key="q"),
    commands.Basic.Ack(7),
    commands.Basic.Qos(0, 5),
    commands.Basic.Get(queue="q"),
    commands.Queue.Declare(queue="q", durable=True, arguments={"x": 1}),
    commands.Channel.Close(200, "", 0, 0),
]


@pytest.mark.parametrize("method", LONG_METHODS, ids=lambda each: each.name)
@pytest.mark.parametrize("behind", [b"\0", b"\1" * 100])
def test_what_stands_behind_a_method_s_last_field_is_a_frame_error(method: Any, behind: bytes) -> None:
    """As with RabbitMQ: the client means something by it that the broker would not do."""
    payload = frame.marshal(method, 1)[7:-1]
    decode = {"Basic.Publish": codec.decode_publish, "Basic.Ack": codec.decode_ack}.get(method.name)
    for each in (codec.decode_method, *([decode] if decode else [])):
        each(payload)
        with pytest.raises(AmqpError, match="there is more behind the method's last field") as refused:
            each(payload + behind)
        assert refused.value.code == 501
