"""The one place where the broker looks into a message: the headers table, for headers exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pamqp import decode

CONTENT_TYPE, CONTENT_ENCODING, HEADERS = 0x80, 0x40, 0x20
"""Bits in the first octet of the property flags (AMQP 0-9-1, 4.2.6.1); headers come third."""


def headers_of(properties: bytes) -> Mapping[str, Any]:
    """The headers of a message, from its raw properties, which are well formed; empty if it has none."""
    flags = properties[0]
    if not flags & HEADERS:
        return {}
    at = 2
    for flag in (CONTENT_TYPE, CONTENT_ENCODING):
        if flags & flag:
            at += 1 + properties[at]
    _, table = decode.field_table(properties[at:])
    return table if isinstance(table, dict) else {}
