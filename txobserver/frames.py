"""Frames: how a group of events stands in the log and on the wire, the same bytes in both.

One frame is one group commit: a fixed header and a msgpack array of events. The checksum covers the header
behind it and the payload, so a torn write or a flipped bit is found before anything is decoded.

    offset  size  field
    0       4     magic "TXHA"
    4       2     format version
    6       2     flags (0)
    8       4     payload length in bytes
    12      4     crc32 of bytes 16.. to the end of the frame
    16      8     generation
    24      8     sequence of the first event
    32      4     number of events
    36      8     time of writing, milliseconds since 1970 (for people and retention; nothing decides by it)
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import msgspec

from txobserver.events import Event
from txobserver.ids import Position

MAGIC = b"TXHA"
FORMAT_VERSION = 1
MAX_PAYLOAD = 1 << 30
_PREFIX = struct.Struct(">4sHHII")
_REST = struct.Struct(">QQIQ")
HEADER_SIZE = _PREFIX.size + _REST.size

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Event])


class FrameError(ValueError):
    """The bytes are not a whole frame of this format."""


class TornFrame(FrameError):
    """The bytes end before the frame does."""


class DamagedFrame(FrameError):
    """The checksum or the magic does not match."""


class UnknownFormat(FrameError):
    """The frame was written by a version that this one does not know."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A group of events with its encoded bytes. ``first`` is the sequence of the first event."""

    generation: int
    first: int
    count: int
    time_ms: int
    data: bytes

    @property
    def last(self) -> int:
        """Sequence of the last event."""
        return self.first + self.count - 1

    @property
    def position(self) -> Position:
        """Position of the last event."""
        return Position(self.generation, self.last)

    def events(self) -> list[Event]:
        """The events in order, decoded anew at each call."""
        events: list[Event] = _decoder.decode(memoryview(self.data)[HEADER_SIZE:])
        return events


def encode_frame(generation: int, first: int, events: list[Event], time_ms: int) -> Frame:
    """One frame for these events, whose sequences run from ``first``."""
    payload = _encoder.encode(events)
    rest = _REST.pack(generation, first, len(events), time_ms)
    crc = zlib.crc32(payload, zlib.crc32(rest))
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, 0, len(payload), crc)
    return Frame(generation, first, len(events), time_ms, b"".join((prefix, rest, payload)))


def decode_frame(data: bytes | memoryview, offset: int = 0) -> tuple[Frame, int]:
    """The frame that begins at ``offset`` and the offset behind it.

    Raises TornFrame, DamagedFrame or UnknownFormat; never returns a frame whose checksum does not match.
    """
    available = len(data) - offset
    if available < HEADER_SIZE:
        raise TornFrame(f"{available} bytes at offset {offset} are less than a frame header")
    magic, version, _flags, length, crc = _PREFIX.unpack_from(data, offset)
    if magic != MAGIC:
        raise DamagedFrame(f"no frame begins at offset {offset}")
    if version != FORMAT_VERSION:
        raise UnknownFormat(f"format version {version} at offset {offset}; this version reads {FORMAT_VERSION}")
    end = offset + HEADER_SIZE + length
    if length > MAX_PAYLOAD:
        raise DamagedFrame(f"the frame at offset {offset} claims {length} bytes")
    if end > len(data):
        raise TornFrame(f"the frame at offset {offset} needs {end - len(data)} bytes more")
    whole = bytes(data[offset:end])
    if zlib.crc32(memoryview(whole)[_PREFIX.size :]) != crc:
        raise DamagedFrame(f"the checksum of the frame at offset {offset} does not match")
    generation, first, count, time_ms = _REST.unpack_from(whole, _PREFIX.size)
    return Frame(generation, first, count, time_ms, whole), end


def payload_length(header: bytes | memoryview) -> int:
    """Length in bytes of the payload behind this frame header (at least HEADER_SIZE bytes of it)."""
    return int(_PREFIX.unpack_from(header)[3])
