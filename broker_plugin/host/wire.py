"""What a node and its host broker say to each other, when the broker is a process of its own.

    message: length (4 bytes, big endian), then a msgpack array: the kind of the message, and its fields

Both directions are in order, and nothing in one waits for the other. The node tells the broker of the applied stream
(``txobserver.ports.ledger.Host``) and answers requests in between, so an answer describes the state as of its place
among what is told. Each activation of the node as primary has a number; a request of an earlier activation gets no
answer, as nothing does that is outstanding when an activation ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import msgspec

from broker_plugin.host.from_broker import FromBroker
from broker_plugin.host.from_node import FromNode
from txobserver.bindings import as_read, written

HOST_VERSION = 1
"""Of this protocol. A broker and a node that speak different ones refuse each other with a sentence."""
MAX_MESSAGE = 1 << 30
MAX_ATTACH = 512
"""Bytes of a broker's first message"""
TOO_DEEP = "a message that is nested too deeply"
LENGTH = struct.Struct(">I")

_encode = msgspec.msgpack.Encoder(enc_hook=written).encode
_from_broker: Callable[[bytes], FromBroker] = msgspec.msgpack.Decoder(FromBroker).decode
_from_node: Callable[[bytes], FromNode] = msgspec.msgpack.Decoder(FromNode, dec_hook=as_read).decode


def framed(message: FromBroker | FromNode) -> bytes:
    """A message with its length in front."""
    data = _encode(message)
    return LENGTH.pack(len(data)) + data


def decode_from_broker(data: bytes) -> FromBroker:
    """A broker's message. Raises ValueError."""
    try:
        return _from_broker(data)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def decode_from_node(data: bytes) -> FromNode:
    """A node's message. Raises ValueError."""
    try:
        return _from_node(data)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def messages_in(buffer: bytearray, longest: int) -> Iterator[bytes]:
    """Takes the whole messages out of ``buffer``. Raises ValueError for one of more than ``longest`` bytes."""
    at = 0
    try:
        while len(buffer) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, at)
            if length > longest:
                raise ValueError(f"a message of {length} bytes, and {longest} are the most")
            start = at + LENGTH.size
            if len(buffer) - start < length:
                return
            at = start + length
            yield bytes(memoryview(buffer)[start:at])
    finally:
        del buffer[:at]
