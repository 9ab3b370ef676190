"""AMQP's property ``message-id``, out of a raw content header."""

from __future__ import annotations

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE, _PRIORITY = 0x80, 0x40, 0x20, 0x10, 0x08
_CORRELATION_ID, _REPLY_TO, _EXPIRATION = 0x04, 0x02, 0x01
"""Bits in the first octet of the property flags, in the order of the list (AMQP 0-9-1, 4.2.6.1)."""
_MESSAGE_ID = 0x80
"""The next one, in the second octet."""


def message_id(properties: bytes) -> str | None:
    """The message-id of these properties, None if they have none or are cut short."""
    if len(properties) < 2 or not properties[1] & _MESSAGE_ID:
        return None
    flags, at = properties[0], 2
    try:
        for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
            if flags & flag:
                at += 1 + properties[at]
        if flags & _HEADERS:
            at += 4 + int.from_bytes(properties[at : at + 4], "big")
        for flag in (_DELIVERY_MODE, _PRIORITY):
            if flags & flag:
                at += 1
        for flag in (_CORRELATION_ID, _REPLY_TO, _EXPIRATION):
            if flags & flag:
                at += 1 + properties[at]
        found = properties[at + 1 : at + 1 + properties[at]]
        return found.decode(errors="replace") if len(found) == properties[at] else None
    except IndexError:
        return None
