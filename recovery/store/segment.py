"""One segment of the log: a checksummed header, then groups of frames, exactly as they went over the wire.

    offset  size  field
    0       4     magic "TXSG"
    4       2     format version
    6       2     length of the description
    8       4     crc32 of bytes 0 to 7 and the description
    12      …     msgpack map: cluster, node, incarnation, first (sequence of the first event), created (ms since 1970)

In front of each group is its header (``recovery.store.groups``); in format version 1 frames stand alone. A segment is
named by its first sequence. ``scan`` never yields a frame whose checksum does not match.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from recovery.store.files import REAL_FILES, Files
from recovery.store.groups import GROUP_HEADER_SIZE, behind_group_headers, group_header_at
from recovery.store.torn import is_torn, is_torn_without_groups
from txobserver.frames import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    DamagedFrame,
    Frame,
    TornFrame,
    UnknownFormat,
    bytes_behind,
    decode_frame,
)
from txobserver.ports.store import StoreDamaged, StoreError

MAGIC = b"TXSG"
FORMAT_VERSION = 2
"""Version 1, which has no groups, can be read too."""
SUFFIX = ".log"
HEADER_ROOM = 12 + 65_535 + GROUP_HEADER_SIZE + HEADER_SIZE
"""Bytes that are read of a segment's beginning: more than any header, whatever the names in it, and a frame's behind"""
_START = struct.Struct(">4sHH")
_CRC = struct.Struct(">I")
_HEADER_SIZE = _START.size + _CRC.size
_BEGINS_FRAME = re.compile(rb"TXHA\0[^\0]")
"""With the version, since a cluster may have that name"""


class SegmentInfo(msgspec.Struct):
    """What a segment says of itself."""

    cluster: str
    node: str
    incarnation: str
    first: int
    created: int


def segment_path(directory: Path, first: int) -> Path:
    """Where the segment that begins at this sequence is."""
    return directory / f"{first:020d}{SUFFIX}"


def segment_firsts(directory: Path, files: Files = REAL_FILES) -> list[int]:
    """First sequences of all segments, in order."""
    stems = [name.removesuffix(SUFFIX) for name in files.names(directory) if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def encode_header(info: SegmentInfo) -> bytes:
    """The bytes that a segment begins with."""
    description = msgspec.msgpack.encode(info)
    start = _START.pack(MAGIC, FORMAT_VERSION, len(description))
    return start + _CRC.pack(zlib.crc32(description, zlib.crc32(start))) + description


def decode_header(data: bytes, path: Path) -> tuple[SegmentInfo, int]:
    """The description and the offset of the first frame. Raises TornFrame, StoreDamaged or StoreError."""
    if len(data) < _HEADER_SIZE or not data.strip(b"\0"):
        raise TornFrame(f"{path} ends within its header")
    magic, version, length = _START.unpack_from(data)
    description = data[_HEADER_SIZE : _HEADER_SIZE + length]
    crc = zlib.crc32(description, zlib.crc32(data[: _START.size]))
    intact = magic == MAGIC and len(description) == length and _CRC.unpack_from(data, _START.size)[0] == crc
    unfilled = (magic == MAGIC and len(description) < length) or data[-1:] == b"\0"
    # Nothing is written behind a header before that is synced, so a long file has had a whole one.
    if not intact and unfilled and len(data) < HEADER_ROOM and not _BEGINS_FRAME.search(data):
        raise TornFrame(f"{path} ends within its header, or was never filled to its end")
    damaged = StoreDamaged(f"the header of {path} is damaged; restore the file or let the node rejoin with a new store")
    if not intact:
        raise damaged
    if not 1 <= version <= FORMAT_VERSION:
        raise StoreError(f"{path} has format version {version}; this version of txha reads 1 to {FORMAT_VERSION}")
    try:
        return msgspec.msgpack.decode(description, type=SegmentInfo), _HEADER_SIZE + length
    except (ValueError, RecursionError):
        raise damaged from None


def read_header(path: Path, files: Files = REAL_FILES) -> tuple[SegmentInfo, int]:
    """As ``decode_header``, of a file."""
    with files.reader(path) as file:
        return decode_header(file.read(HEADER_ROOM), path)


def has_groups(data: bytes) -> bool:
    """Whether groups have headers in the segment that begins with these bytes, at least its header's first 6."""
    return int(_START.unpack_from(data)[1]) > 1


def scan(path: Path, offset: int = 0, whole: bool = True, files: Files = REAL_FILES) -> Iterator[tuple[int, Frame]]:
    """Every (offset, frame) from a frame's offset on; 0 is the first frame.

    Ends silently at a tail that a crash can have left, if ``whole`` is False; else such a tail is damage.
    Raises StoreDamaged for anything else that is not a frame, StoreError for an unknown format.
    """
    with files.reader(path) as file:
        if offset == 0:
            _, offset = decode_header(file.read(HEADER_ROOM), path)
        while (found := _frame_from(file, offset, path, whole)) is not None:
            offset, frame = found
            yield offset, frame
            offset += len(frame.data)


def _frame_from(file: BinaryIO, offset: int, path: Path, whole: bool) -> tuple[int, Frame] | None:
    """The next frame from ``offset`` on, with its own; None where the file ends. Raises as ``scan`` does."""
    file.seek(offset)
    data = file.read(HEADER_SIZE)
    while group_header_at(data, offset) is not None:
        offset += GROUP_HEADER_SIZE
        data = data[GROUP_HEADER_SIZE:] + file.read(GROUP_HEADER_SIZE)
    if not data:
        return None
    if len(data) == HEADER_SIZE and data[:4] == b"TXHA":
        data += file.read(min(bytes_behind(data), MAX_PAYLOAD + 1))
    try:
        return offset, decode_frame(data)[0]
    except UnknownFormat as error:
        raise StoreError(f"{path}: {error}") from None
    except (TornFrame, DamagedFrame):
        pass
    # A node may be writing: since that reading, this frame may have become whole, and others stand behind it. So one
    # reading is judged by itself, and nothing that another one shows (``a_read_meets_a_frame_mid_write``).
    file.seek(0)
    return _judge(file.read(), offset, path, whole)


def _judge(segment: bytes, offset: int, path: Path, whole: bool) -> tuple[int, Frame] | None:
    """As ``_frame_from``, of all bytes of the file."""
    offset = behind_group_headers(segment, offset)
    try:
        return offset, decode_frame(segment, offset)[0]
    except UnknownFormat as error:
        raise StoreError(f"{path}: {error}") from None
    except (TornFrame, DamagedFrame) as error:
        if not whole and _is_torn(segment, offset, path, error):
            return None
        raise StoreDamaged(
            f"{path} is damaged at offset {offset}; restore the file or let the node rejoin with a new store"
        ) from None


def _is_torn(segment: bytes, offset: int, path: Path, error: Exception) -> bool:
    _, frames = decode_header(segment[:HEADER_ROOM], path)
    if has_groups(segment):
        return is_torn(segment, frames, offset)
    return is_torn_without_groups(segment[offset:], error)
