"""Frames to bytes and back. pamqp does all but what comes once per message: publish, deliver, content, ack; and
commit, which comes once per transaction.

What this module encodes itself is checked against pamqp by property tests. Frame layout: AMQP 0-9-1, 2.3.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pamqp import base, commands, decode, frame

from broker_plugin.embedded.errors import AmqpError, not_found
from broker_plugin.embedded.field_table import read_table
from txobserver.dtx_wire import DtxMethod
from txobserver.octets import octets_of, text_of

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

BASIC: Final = 60
PUBLISH: Final = b"\x00\x3c\x00\x28"
ACK: Final = b"\x00\x3c\x00\x50"
COMMIT: Final = b"\x00\x5a\x00\x14"
_RETURN = b"\x00\x3c\x00\x32"
_DELIVER = b"\x00\x3c\x00\x3c"
_GET_OK = b"\x00\x3c\x00\x47"
_NACK = b"\x00\x3c\x00\x78"
_OPEN_OK = b"\x00\x14\x00\x0b"
_DECLARE_OK = b"\x00\x32\x00\x0b"
_COMMIT_OK = b"\x00\x5a\x00\x15"

FRAME_START = struct.Struct(">BHI")
CONTENT_START = struct.Struct(">HHQ")
_ACK_ARGUMENTS = struct.Struct(">QB")
HEADER_FRAME = struct.Struct(">BHIHHQ")
_TAG = struct.Struct(">QB")
_ANSWER = struct.Struct(">BHI4sQBB")
_FRAME_PACK = FRAME_START.pack
_HEADER_PACK = HEADER_FRAME.pack
_TAG_PACK = _TAG.pack


class PublishArguments(NamedTuple):
    """basic.publish without its content."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool


class Repeated:
    """A basic.publish that a client repeats: what it says, and what came behind it the last time.

    ``head`` is all between the method and the body: the header's frame and the beginning of the only body frame. It
    came on ``channel``, and means nothing on another one (``another_channel_s_content_behind_a_publish``).
    Empty: nothing is known of it. ``kept``: whether it is remembered.
    """

    __slots__ = ("arguments", "channel", "head", "kept", "properties", "size")

    def __init__(self, arguments: PublishArguments) -> None:
        self.arguments = arguments
        self.channel = 0
        self.head = b""
        self.properties = b""
        self.size = 0
        self.kept = False


class SyntaxProblem(AmqpError):
    """502: the bytes of a method or header do not decode."""

    def __init__(self, text: str) -> None:
        super().__init__(502, text)


def decode_method(payload: bytes) -> base.Frame:
    """Any method frame's payload, by pamqp. 501 if it does not decode, 503 for a method that is not known."""
    index = int.from_bytes(payload[:4], "big")
    kind = commands.INDEX_MAPPING.get(index)
    if kind is None:
        raise AmqpError(503, f"unknown method {index >> 16}.{index & 0xFFFF}")
    method: base.Frame = kind()
    end = len(payload)
    try:
        if isinstance(method, DtxMethod):
            method.unmarshal(payload[4:])
        else:
            end = _unmarshal(method, payload)
    except Exception as error:
        raise AmqpError(501, f"cannot decode {octets(payload[4:])}: {error}") from None
    if end != len(payload):
        raise _too_long(payload)
    return method


def _too_long(payload: bytes) -> AmqpError:
    return AmqpError(501, f"cannot decode {octets(payload[4:])}: there is more behind the method's last field")


def _unmarshal(method: base.Frame, payload: bytes) -> int:
    """As pamqp does it, but for tables: RabbitMQ takes more of them than pamqp. Returns where the last field ends."""
    at, bit = 4, 0
    value: object
    for name in method.attributes():
        kind = method.amqp_type(name)
        if bit and (kind != "bit" or bit == 8):
            at, bit = at + 1, 0
        if kind == "bit":
            value = bool(payload[at] >> bit & 1)
            bit += 1
        elif kind == "table":
            at, value = read_table(payload, at)
        else:
            size, value = decode.by_type(payload[at:], kind)
            at += size
        setattr(method, name, value)
    return at + (bit > 0)


def octets(data: bytes) -> str:
    """Bytes as RabbitMQ's texts show them, 16 at most."""
    return f"<<{','.join(map(str, data[:16]))}>>"


def frame_problem(kind: int, payload: bytes) -> str:
    """A frame as RabbitMQ's texts show it."""
    which = "all octets" if len(payload) <= 16 else "first 16 octets"
    return f"type {kind}, {which} = {octets(payload)}"


def decode_publish(payload: bytes) -> PublishArguments:
    """The payload of a basic.publish frame; a routing key need not be text. 502 if it does not decode, 501 if more
    stands behind it, and 404 if the exchange's name is no text, which no exchange can have.
    """
    try:
        at = 7 + payload[6]
        end = at + 1 + payload[at]
        key = text_of(payload[at + 1 : end])
        bits = payload[end]
        exchange = payload[7:at].decode()
    except IndexError as error:
        raise SyntaxProblem(f"cannot decode Basic.Publish: {error}") from None
    except UnicodeDecodeError:
        raise not_found("exchange", payload[7:at].decode(errors="replace")) from None
    if end + 1 != len(payload):
        raise _too_long(payload)
    return PublishArguments(exchange, key, bool(bits & 1), bool(bits & 2))


def decode_ack(payload: bytes) -> tuple[int, bool]:
    """The payload of a basic.ack frame: delivery tag and multiple. 502 if it does not decode, 501 if more stands behind
    it.
    """
    try:
        tag, bits = _ACK_ARGUMENTS.unpack_from(payload, 4)
    except struct.error as error:
        raise SyntaxProblem(f"cannot decode Basic.Ack: {error}") from None
    if len(payload) != 4 + _ACK_ARGUMENTS.size:
        raise _too_long(payload)
    return tag, bool(bits & 1)


def encode_method(method: base.Frame, channel: int) -> bytes:
    """Any method as a frame, by pamqp."""
    return frame.marshal(method, channel)


def short_string(text: str) -> bytes:
    """A short string; what does not fit in 255 bytes is cut."""
    data = text.encode()
    if len(data) > 255:
        data = data[:255].decode(errors="ignore").encode()
    return bytes((len(data),)) + data


def encode_origin(exchange: str, routing_key: str) -> bytes:
    """Exchange and routing key as they stand in deliveries."""
    key = octets_of(routing_key)[:255]
    return b"".join((short_string(exchange), bytes((len(key),)), key))


def _method_frame(channel: int, payload: bytes) -> bytes:
    return b"".join((FRAME_START.pack(METHOD, channel, len(payload)), payload, b"\xce"))


def encode_content(channel: int, properties: bytes, body: bytes, frame_max: int) -> bytes:
    """Header frame and body frames; no frame is larger than ``frame_max`` (0: no limit)."""
    size = len(body)
    head = HEADER_FRAME.pack(HEADER, channel, 12 + len(properties), BASIC, 0, size)
    if not size:
        return b"".join((head, properties, b"\xce"))
    if not frame_max or size + OVERHEAD <= frame_max:
        return b"".join((head, properties, b"\xce", FRAME_START.pack(BODY, channel, size), body, b"\xce"))
    parts: list[bytes | memoryview] = [head, properties, b"\xce"]
    view, step = memoryview(body), frame_max - OVERHEAD
    for at in range(0, size, step):
        piece = view[at : at + step]
        parts += (FRAME_START.pack(BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


def deliver_prefix(consumer_tag: str) -> bytes:
    """What every basic.deliver to this consumer begins with."""
    return _DELIVER + short_string(consumer_tag)


def encode_delivery(
    channel: int,
    prefix: bytes,
    tag: int,
    redelivered: bool,
    origin: bytes,
    content: tuple[bytes, bytes],
    frame_max: int,
) -> bytes:
    """basic.deliver with its content (properties, body); ``origin`` is exchange and routing key as short strings."""
    properties, body = content
    size = len(body)
    start = _FRAME_PACK(METHOD, channel, len(prefix) + 9 + len(origin))
    if not size or (frame_max and size + OVERHEAD > frame_max):
        deliver = b"".join((start, prefix, _TAG_PACK(tag, redelivered), origin, b"\xce"))
        return deliver + encode_content(channel, properties, body, frame_max)
    return b"".join(
        (
            start,
            prefix,
            _TAG_PACK(tag, redelivered),
            origin,
            b"\xce",
            _HEADER_PACK(HEADER, channel, 12 + len(properties), BASIC, 0, size),
            properties,
            b"\xce",
            _FRAME_PACK(BODY, channel, size),
            body,
            b"\xce",
        )
    )


def encode_get_ok(channel: int, tag: int, redelivered: bool, origin: bytes, remaining: int) -> bytes:
    """basic.get-ok."""
    count = min(remaining, 0xFFFFFFFF).to_bytes(4, "big")
    return _method_frame(channel, b"".join((_GET_OK, _TAG.pack(tag, redelivered), origin, count)))


def encode_return(channel: int, code: int, text: str, origin: bytes) -> bytes:
    """basic.return."""
    return _method_frame(channel, b"".join((_RETURN, code.to_bytes(2, "big"), short_string(text), origin)))


def encode_close(
    kind: type[commands.Channel.Close] | type[commands.Connection.Close],
    error: AmqpError,
    method: int,
    channel: int = 0,
) -> bytes:
    """channel.close or connection.close for this error, which ``method`` (class and method id) has caused."""
    text = short_string(error.reply_text)[1:].decode()
    return encode_method(kind(error.code, text, method >> 16, method & 0xFFFF), channel)


def encode_confirm(channel: int, tag: int, multiple: bool, accepted: bool) -> bytes:
    """basic.ack or basic.nack from the broker."""
    return _ANSWER.pack(METHOD, channel, 13, ACK if accepted else _NACK, tag, multiple, FRAME_END)


def encode_commit_ok(channel: int) -> bytes:
    """tx.commit-ok."""
    return _method_frame(channel, _COMMIT_OK)


def encode_open_ok(channel: int) -> bytes:
    """channel.open-ok, whose only field is reserved and empty."""
    return _method_frame(channel, _OPEN_OK + b"\0\0\0\0")


def encode_declare_ok(channel: int, queue: str, messages: int, consumers: int) -> bytes:
    """queue.declare-ok. (pamqp refuses names that RabbitMQ allows.)"""
    counts = struct.pack(">II", min(messages, 0xFFFFFFFF), consumers)
    return _method_frame(channel, b"".join((_DECLARE_OK, short_string(queue), counts)))
