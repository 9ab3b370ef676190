"""One segment of the log: a checksummed header, then frames, exactly as they went over the wire.

    offset  size  field
    0       4     magic "TXSG"
    4       2     format version
    6       2     length of the description
    8       4     crc32 of bytes 0 to 7 and the description
    12      …     msgpack map: cluster, node, incarnation, first (sequence of the first event), created (ms since 1970)

A segment is named by its first sequence. ``scan`` never yields a frame whose checksum does not match.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from recovery.files import REAL_FILES, Files
from txobserver.frames import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    DamagedFrame,
    Frame,
    TornFrame,
    UnknownFormat,
    bytes_behind,
    decode_frame,
    header_is_intact,
    last_of,
)
from txobserver.store import StoreDamaged, StoreError

MAGIC = b"TXSG"
FORMAT_VERSION = 1
SUFFIX = ".log"
HEADER_ROOM = 12 + 65_535
"""Bytes that are read of a segment's beginning: no header is longer, whatever the names in it."""
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
    if not intact and unfilled and not _BEGINS_FRAME.search(data):
        raise TornFrame(f"{path} ends within its header, or was never filled to its end")
    damaged = StoreDamaged(f"the header of {path} is damaged; restore the file or let the node rejoin with a new store")
    if not intact:
        raise damaged
    if version != FORMAT_VERSION:
        raise StoreError(f"{path} has format version {version}; this version of txha reads {FORMAT_VERSION}")
    try:
        return msgspec.msgpack.decode(description, type=SegmentInfo), _HEADER_SIZE + length
    except ValueError:
        raise damaged from None


def read_header(path: Path, files: Files = REAL_FILES) -> tuple[SegmentInfo, int]:
    """As ``decode_header``, of a file."""
    with files.reader(path) as file:
        return decode_header(file.read(HEADER_ROOM), path)


def scan(path: Path, offset: int = 0, whole: bool = True, files: Files = REAL_FILES) -> Iterator[tuple[int, Frame]]:
    """Every (offset, frame) from a frame's offset on; 0 is the first frame.

    Ends silently at a tail that a crash can have left, if ``whole`` is False; else such a tail is damage.
    Raises StoreDamaged for anything else that is not a frame, StoreError for an unknown format.
    """
    with files.reader(path) as file:
        if offset == 0:
            _, offset = decode_header(file.read(HEADER_ROOM), path)
        while (found := _frame_at(file, offset, path, whole)) is not None:
            yield offset, found[0]
            offset += found[1]


def _frame_at(file: BinaryIO, offset: int, path: Path, whole: bool) -> tuple[Frame, int] | None:
    """The frame that begins at ``offset``, with its length; None where the file ends. Raises as ``scan`` does."""
    file.seek(offset)
    data = file.read(HEADER_SIZE)
    if not data:
        return None
    if len(data) == HEADER_SIZE and data[:4] == b"TXHA":
        data += file.read(min(bytes_behind(data), MAX_PAYLOAD + 1))
    try:
        return decode_frame(data)
    except UnknownFormat as error:
        raise StoreError(f"{path}: {error}") from None
    except (TornFrame, DamagedFrame):
        pass
    # Somebody may be writing: since that reading, this frame may have become whole, and others stand behind it. So one
    # reading is judged by itself, and nothing that another one shows (``a_read_meets_a_frame_mid_write``).
    file.seek(offset)
    rest = file.read()
    try:
        return decode_frame(rest)
    except UnknownFormat as error:
        raise StoreError(f"{path}: {error}") from None
    except (TornFrame, DamagedFrame) as error:
        if not whole and _torn(rest, error):
            return None
        raise StoreDamaged(
            f"{path} is damaged at offset {offset}; restore the file or let the node rejoin with a new store"
        ) from None


def _torn(rest: bytes, error: Exception) -> bool:
    """Whether ``rest``, all from a frame's offset on, can be a write that a crash cut short, not a damaged record.

    A cut write leaves a file that is too short, or one whose tail was never filled and reads as zeros. A record
    that is all there up to its own last byte, which is never zero, and fails its checksum was whole once, and may have
    been acknowledged; what a crash left behind it says nothing about it (``damaged_before_a_torn_tail``).
    """
    if _later_frame_in(rest):
        return False
    if isinstance(error, TornFrame):
        return True
    if header_is_intact(rest):
        end = HEADER_SIZE + bytes_behind(rest)
        return rest[end - 1 : end] == b"\0"
    return not rest[HEADER_SIZE - 1 :].strip(b"\0")


def _later_frame_in(rest: bytes) -> bool:
    """Whether a whole frame stands there that may have been written later than what ``rest`` begins with.

    A message may hold the bytes of a log. So of what stands within the bytes that an intact header counts as its own,
    only a frame that goes on from there is a later one: an event takes a byte at least.
    """
    intact = header_is_intact(rest)
    end, last = (HEADER_SIZE + bytes_behind(rest), last_of(rest)) if intact else (0, 0)
    at = rest.find(b"TXHA")
    while at >= 0:
        try:
            frame, _ = decode_frame(rest, at)
            if at >= end or last < frame.first <= last + len(rest):
                return True
        except (TornFrame, DamagedFrame, UnknownFormat):
            pass
        at = rest.find(b"TXHA", at + 1)
    return False
