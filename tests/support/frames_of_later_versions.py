"""Frames as a later version of txha may write them: whole, with right checksums, and with something that is new."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from txobserver.frames import _CRC, _HEADER, HEADER_SIZE, TRAILER, Frame


def with_payload(frame: Frame, events: list[Any]) -> Frame:
    """A frame in the place of this one, with these events as plain arrays."""
    payload = msgspec.msgpack.encode(events)
    return _made(frame, payload, len(events), _HEADER.unpack_from(frame.data)[1])


def with_version(frame: Frame, version: int) -> Frame:
    """The same frame in another format version."""
    return _made(frame, frame.data[HEADER_SIZE : -len(TRAILER)], frame.count, version)


def _made(frame: Frame, payload: bytes, count: int, version: int) -> Frame:
    magic, _, flags, _, _, generation, first, _, time_ms = _HEADER.unpack_from(frame.data)
    header = _HEADER.pack(magic, version, flags, len(payload), zlib.crc32(payload), generation, first, count, time_ms)
    data = b"".join((header, _CRC.pack(zlib.crc32(header)), payload, TRAILER))
    return Frame(generation, first, count, time_ms, data)
