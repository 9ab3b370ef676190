"""The one place where the broker looks into a message: the headers table, and the priority.

For headers exchanges, for consumers that ask for each message's offset (``OFFSET``), and for queues with priorities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_plugin.embedded.field_table import read_table

CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE, PRIORITY = 0x80, 0x40, 0x20, 0x10, 0x08
"""Bits in the first octet of the property flags (AMQP 0-9-1, 4.2.6.1); headers come third, delivery mode
and priority are one octet each."""

OFFSET = "x-txha-place"
"""As an argument of basic.consume, with the value true, it asks for the header of this name on every delivery: the
message's offset in its queue, which no other message of that queue ever has, and which stays through take-overs."""


def headers_of(properties: bytes) -> Mapping[str, Any]:
    """The headers of a message, from its raw properties, which are well formed; empty if it has none."""
    if not properties[0] & HEADERS:
        return {}
    return read_table(properties, _table_at(properties))[1]


def priority_of(properties: bytes) -> int:
    """The priority in raw properties, which are well formed; 0 if there is none."""
    if not properties[0] & PRIORITY:
        return 0
    at = _table_at(properties)
    if properties[0] & HEADERS:
        at += 4 + int.from_bytes(properties[at : at + 4], "big")
    return properties[at + 1 if properties[0] & DELIVERY_MODE else at]


def with_offset(properties: bytes, offset: int) -> bytes:
    """Raw properties, with one more header behind all others: ``OFFSET``, a signed 64-bit number."""
    at = _table_at(properties)
    size, rest = (int.from_bytes(properties[at : at + 4], "big"), at + 4) if properties[0] & HEADERS else (0, at)
    entry = bytes((len(OFFSET),)) + OFFSET.encode() + b"l" + offset.to_bytes(8, "big")
    return b"".join(
        (
            bytes((properties[0] | HEADERS,)),
            properties[1:at],
            (size + len(entry)).to_bytes(4, "big"),
            properties[rest : rest + size],
            entry,
            properties[rest + size :],
        )
    )


def _table_at(properties: bytes) -> int:
    """Where the headers table begins, or would."""
    at = 2
    for flag in (CONTENT_TYPE, CONTENT_ENCODING):
        if properties[0] & flag:
            at += 1 + properties[at]
    return at
