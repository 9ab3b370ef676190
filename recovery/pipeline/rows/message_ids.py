"""Where AMQP's property ``message-id`` stands in raw content headers, of many messages at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from recovery.pipeline.rows.columns import Flags, Numbers

_BEFORE = (
    (0x80, 1),  # content-type
    (0x40, 1),  # content-encoding
    (0x20, 4),  # headers
    (0x10, 0),  # delivery-mode
    (0x08, 0),  # priority
    (0x04, 1),  # correlation-id
    (0x02, 1),  # reply-to
    (0x01, 1),  # expiration
)
"""What stands before it in a property list (AMQP 0-9-1, 4.2.6.1): its flag, in the first octet, and how many octets of
length it begins with; none if it is one octet itself."""
_MESSAGE_ID = 0x80
"""Its flag, in the second octet."""


def message_ids(data: bytes, begins: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Flags]:
    """Where the message-ids begin and end, of the properties that stand from ``begins`` to ``ends``; and which of
    them have one.

    Properties that are cut short have none. Where there is none it is an empty place at the beginning.
    """
    cursor = _Cursor(np.frombuffer(data, np.uint8), begins, ends)
    flags, more = cursor.octet(), cursor.octet()
    cursor.whole &= (more & _MESSAGE_ID) != 0
    for flag, prefix in _BEFORE:
        cursor.skip((flags & flag) != 0, prefix)
    length = cursor.octet()
    found = cursor.whole & (cursor.at + length <= ends)
    return np.where(found, cursor.at, begins), np.where(found, cursor.at + length, begins), found


class _Cursor:
    """A place in each of several byte strings; ``whole`` tells of which it has not run over the end."""

    def __init__(self, data: Any, begins: Numbers, ends: Numbers) -> None:
        self._data, self._ends = data, ends
        self.at = begins
        self.whole: Flags = np.ones(len(begins), np.bool_)

    def octet(self) -> Numbers:
        """The next octet of each."""
        self.whole &= self.at < self._ends
        found: Numbers = self._data[np.minimum(self.at, len(self._data) - 1)].astype(np.int64)
        self.at = self.at + 1
        return found

    def skip(self, which: Flags, prefix: int) -> None:
        """In some of them, a field with a length of so many octets before it, or of one octet."""
        if not which.any():
            return
        field = _Cursor(self._data, self.at, self._ends)
        size: Any = 0 if prefix else 1
        for _ in range(prefix):
            size = size << 8 | field.octet()
        self.at = np.where(which, field.at + size, self.at)
        self.whole &= field.whole | ~which
