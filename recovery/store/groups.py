"""The header of a group: it stands in a segment in front of the frames that are written and synced together.

    offset  size  field
    0       4     magic "TXGR"
    4       8     its own offset in the segment
    12      8     bytes of the group behind this header; 0 where a log was cut, and begins a group anew
    20      4     how many sectors of the group, as the file counts them, its frames fill with zeros
    24      4     crc32 of bytes 0 to 23
    28      1     0xA5, as at the end of a frame

A group is written when the one before it has been synced. So a group with anything behind it was synced, and only the
last one of a log can be what a power cut left, which may have kept any of its sectors and lost any others
(``recovery.store.torn``).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

MAGIC = b"TXGR"
SECTOR = 512
"""Bytes that a disk writes whole or not at all, and which a file system shows as zeros where it did not"""
_ZEROS = bytes(SECTOR)
_START = struct.Struct(">4sQQI")
_CRC = struct.Struct(">I")
_TRAILER = b"\xa5"
GROUP_HEADER_SIZE = _START.size + _CRC.size + len(_TRAILER)


class GroupHeader(NamedTuple):
    """What stands in front of a group."""

    offset: int
    """Where it stands itself"""
    size: int
    """Bytes of the group behind it"""
    zeros: int
    """Sectors of the group that hold nothing but zeros"""

    @property
    def end(self) -> int:
        """The offset behind the group."""
        return self.offset + GROUP_HEADER_SIZE + self.size


def encode_group_header(offset: int, frames: Sequence[bytes]) -> bytes:
    """The header at this offset of the group of these frames."""
    at = offset + GROUP_HEADER_SIZE
    size = zeros = 0
    for frame in frames:  # each begins and ends with what is not zero, so no sector of zeros is of two of them
        zeros += zero_sectors(frame, at + size)
        size += len(frame)
    start = _START.pack(MAGIC, offset, size, zeros)
    return start + _CRC.pack(zlib.crc32(start)) + _TRAILER


def decode_group_header(data: bytes, at: int = 0) -> GroupHeader | None:
    """The group header at index ``at`` of ``data``, whatever its offset; None if there is none as it was written."""
    if data[at : at + len(MAGIC)] != MAGIC or len(data) - at < GROUP_HEADER_SIZE:
        return None
    crc = zlib.crc32(data[at : at + _START.size])
    if _CRC.unpack_from(data, at + _START.size)[0] != crc or data[at + GROUP_HEADER_SIZE - 1] != _TRAILER[0]:
        return None
    _, offset, size, zeros = _START.unpack_from(data, at)
    return GroupHeader(offset, size, zeros)


def group_header_at(data: bytes, offset: int) -> GroupHeader | None:
    """The group header that ``data``, read at this offset of a segment, begins with; None if there is none."""
    header = decode_group_header(data)
    return header if header is not None and header.offset == offset else None


def behind_group_headers(segment: bytes, at: int) -> int:
    """The offset behind those group headers that stand at ``at`` in a segment, all of whose bytes are given."""
    while group_header_at(segment[at : at + GROUP_HEADER_SIZE], at) is not None:
        at += GROUP_HEADER_SIZE
    return at


def zero_sectors(data: bytes, offset: int) -> int:
    """How many whole sectors hold nothing but zeros in ``data``, which stands at this offset of a file."""
    if _ZEROS not in data:
        return 0
    return sum(data.startswith(_ZEROS, at) for at in range(-offset % SECTOR, len(data) - SECTOR + 1, SECTOR))
