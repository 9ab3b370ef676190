"""AMQP 0-9-1 by hand: frames, methods, tables and properties as octets. Nothing here is shared with the broker.

A short string is a Python text of which each character is one octet (latin-1), so that programs can say any octets and
still be JSON. A table is a list of [name, type, value] with RabbitMQ's letters for types.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"

SPECIFICATION = """
connection.start 10 10 major:octet minor:octet properties:table mechanisms:long locales:long
connection.start-ok 10 11 properties:table mechanism:short response:long locale:short
connection.tune 10 30 channel_max:u16 frame_max:u32 heartbeat:u16
connection.tune-ok 10 31 channel_max:u16 frame_max:u32 heartbeat:u16
connection.open 10 40 vhost:short r1:short r2:bit
connection.open-ok 10 41 r1:short
connection.close 10 50 code:u16 text:short class:u16 method:u16
connection.close-ok 10 51
connection.blocked 10 60 reason:short
connection.unblocked 10 61
channel.open 20 10 r1:short
channel.open-ok 20 11 r1:long
channel.flow 20 20 active:bit
channel.flow-ok 20 21 active:bit
channel.close 20 40 code:u16 text:short class:u16 method:u16
channel.close-ok 20 41
exchange.declare 40 10 r1:u16 exchange:short type:short passive:bit durable:bit auto_delete:bit internal:bit nowait:bit\
 arguments:table
exchange.declare-ok 40 11
exchange.delete 40 20 r1:u16 exchange:short if_unused:bit nowait:bit
exchange.delete-ok 40 21
exchange.bind 40 30 r1:u16 destination:short source:short key:short nowait:bit arguments:table
exchange.bind-ok 40 31
exchange.unbind 40 40 r1:u16 destination:short source:short key:short nowait:bit arguments:table
exchange.unbind-ok 40 51
queue.declare 50 10 r1:u16 queue:short passive:bit durable:bit exclusive:bit auto_delete:bit nowait:bit arguments:table
queue.declare-ok 50 11 queue:short messages:u32 consumers:u32
queue.bind 50 20 r1:u16 queue:short exchange:short key:short nowait:bit arguments:table
queue.bind-ok 50 21
queue.purge 50 30 r1:u16 queue:short nowait:bit
queue.purge-ok 50 31 messages:u32
queue.delete 50 40 r1:u16 queue:short if_unused:bit if_empty:bit nowait:bit
queue.delete-ok 50 41 messages:u32
queue.unbind 50 50 r1:u16 queue:short exchange:short key:short arguments:table
queue.unbind-ok 50 51
basic.qos 60 10 size:u32 count:u16 global:bit
basic.qos-ok 60 11
basic.consume 60 20 r1:u16 queue:short tag:short no_local:bit no_ack:bit exclusive:bit nowait:bit arguments:table
basic.consume-ok 60 21 tag:short
basic.cancel 60 30 tag:short nowait:bit
basic.cancel-ok 60 31 tag:short
basic.publish 60 40 r1:u16 exchange:short key:short mandatory:bit immediate:bit
basic.return 60 50 code:u16 text:short exchange:short key:short
basic.deliver 60 60 tag:short delivery:u64 redelivered:bit exchange:short key:short
basic.get 60 70 r1:u16 queue:short no_ack:bit
basic.get-ok 60 71 delivery:u64 redelivered:bit exchange:short key:short messages:u32
basic.get-empty 60 72 r1:short
basic.ack 60 80 delivery:u64 multiple:bit
basic.reject 60 90 delivery:u64 requeue:bit
basic.recover-async 60 100 requeue:bit
basic.recover 60 110 requeue:bit
basic.recover-ok 60 111
basic.nack 60 120 delivery:u64 multiple:bit requeue:bit
confirm.select 85 10 nowait:bit
confirm.select-ok 85 11
tx.select 90 10
tx.select-ok 90 11
tx.commit 90 20
tx.commit-ok 90 21
tx.rollback 90 30
tx.rollback-ok 90 31
"""
CONTENT = {"basic.return", "basic.deliver", "basic.get-ok"}
_NUMBERS = {"octet": ">B", "u16": ">H", "u32": ">I", "u64": ">Q"}
_FIXED = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "f": ">f", "d": ">d", "T": ">Q"}

PROPERTIES = (
    ("content_type", "short"),
    ("content_encoding", "short"),
    ("headers", "table"),
    ("delivery_mode", "octet"),
    ("priority", "octet"),
    ("correlation_id", "short"),
    ("reply_to", "short"),
    ("expiration", "short"),
    ("message_id", "short"),
    ("timestamp", "u64"),
    ("type", "short"),
    ("user_id", "short"),
    ("app_id", "short"),
    ("cluster_id", "short"),
)


class Method(NamedTuple):
    """One line of the specification."""

    name: str
    index: bytes
    fields: tuple[tuple[str, str], ...]


def _read_specification() -> dict[str, Method]:
    found = {}
    for line in SPECIFICATION.strip().splitlines():
        name, class_id, method_id, *fields = line.split()
        index = struct.pack(">HH", int(class_id), int(method_id))
        pairs = tuple((field.split(":")[0], field.split(":")[1]) for field in fields)
        found[name] = Method(name, index, pairs)
    return found


METHODS = _read_specification()
BY_INDEX = {method.index: method for method in METHODS.values()}


def short(text: str) -> bytes:
    """A short string."""
    data = text.encode("latin-1")
    return bytes((len(data),)) + data


def long(data: bytes) -> bytes:
    """A long string."""
    return struct.pack(">I", len(data)) + data


def value(kind: str, item: Any) -> bytes:
    """A value of a table, without its letter."""
    if kind in _FIXED:
        return struct.pack(_FIXED[kind], item)
    if kind == "t":
        return bytes((int(item),))
    if kind in "Sx":
        return long(item.encode("latin-1"))
    if kind == "F":
        return table(item)
    if kind == "A":
        return long(b"".join(each_kind.encode() + value(each_kind, each) for each_kind, each in item))
    if kind == "D":
        return struct.pack(">Bi", *item)
    return b""  # V


def table(entries: Sequence[Sequence[Any]]) -> bytes:
    """A table."""
    return long(b"".join(short(name) + kind.encode() + value(kind, item) for name, kind, item in entries))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + END


def method(name: str, arguments: Mapping[str, Any]) -> bytes:
    """A method's payload; what is not given is 0, empty or off. KeyError for an argument that it does not have."""
    known = METHODS[name]
    if unknown := set(arguments) - {field for field, _ in known.fields}:
        raise KeyError(f"{name} has no {unknown}")
    out, bits, count = [known.index], 0, 0
    for field, kind in known.fields:
        if kind == "bit":
            bits |= bool(arguments.get(field)) << count
            count += 1
            continue
        if count:
            out.append(bytes((bits,)))
            bits = count = 0
        out.append(_field(kind, arguments.get(field)))
    if count:
        out.append(bytes((bits,)))
    return b"".join(out)


def _field(kind: str, item: Any) -> bytes:
    if kind == "short":
        return short(item or "")
    if kind == "long":
        return long((item or "").encode("latin-1"))
    if kind == "table":
        return table(item or ())
    return struct.pack(_NUMBERS[kind], item or 0)


def read_headers(properties: bytes) -> tuple[bytes, list[bytes]]:
    """The octets of a message's properties without its headers, and each of its headers, from flags to the end."""
    flags, at = int.from_bytes(properties[:2], "big"), 2
    for number, (name, _) in enumerate(PROPERTIES[:3]):
        if flags & 1 << (15 - number):
            if name == "headers":
                stop = at + 4 + int.from_bytes(properties[at : at + 4], "big")
                return properties[:at] + properties[stop:], _entries(properties[at + 4 : stop])
            at += 1 + properties[at]
    return properties, []


def _entries(octets: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(octets):
        kind = at + 1 + octets[at]
        stop = kind + 1 + _size(chr(octets[kind]), octets[kind + 1 : kind + 5])
        found.append(octets[at:stop])
        at = stop
    return found


def _size(kind: str, begin: bytes) -> int:
    if kind in _FIXED:
        return struct.calcsize(_FIXED[kind])
    return 4 + int.from_bytes(begin, "big") if kind in "SxFA" else {"t": 1, "D": 5, "V": 0}[kind]


def content_header(size: int, properties: Mapping[str, Any], class_id: int = 60) -> bytes:
    """A content header's payload."""
    flags, out = 0, []
    for number, (name, kind) in enumerate(PROPERTIES):
        if name in properties:
            flags |= 1 << (15 - number)
            out.append(_field(kind, properties[name]))
    return struct.pack(">HHQH", class_id, 0, size, flags) + b"".join(out)


def read_method(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Name and fields of a method; a table is left as its octets."""
    known = BY_INDEX[payload[:4]]
    fields: dict[str, Any] = {}
    at, bit = 4, 0
    for field, kind in known.fields:
        if kind == "bit":
            fields[field] = bool(payload[at] >> bit & 1)
            bit += 1
            continue
        if bit:
            at, bit = at + 1, 0
        if kind == "short":
            size = payload[at]
            fields[field] = payload[at + 1 : at + 1 + size].decode("latin-1")
            at += 1 + size
        elif kind in ("long", "table"):
            size = int.from_bytes(payload[at : at + 4], "big")
            fields[field] = payload[at + 4 : at + 4 + size].decode("latin-1")
            at += 4 + size
        else:
            size = struct.calcsize(_NUMBERS[kind])
            fields[field] = int.from_bytes(payload[at : at + size], "big")
            at += size
    return known.name, fields
