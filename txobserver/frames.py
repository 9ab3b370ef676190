"""Frames: how a group of events stands in the log and on the wire, the same bytes in both.

One frame is one group commit: a fixed header and a msgpack array of events. Header and payload have a checksum each,
so a flipped bit is found before anything is decoded, and a damaged length is not taken for a torn write. Every version
has these 48 bytes first, so that a damaged version is not taken for an unknown one.

    offset  size  field
    0       4     magic "TXHA"
    4       2     format version
    6       2     flags (0)
    8       4     payload length in bytes
    12      4     crc32 of the payload
    16      8     generation
    24      8     sequence of the first event
    32      4     number of events
    36      8     time of writing, milliseconds since 1970 (for people and retention; nothing decides by it)
    44      4     crc32 of bytes 0 to 43
    48      …     payload
    end     1     0xA5: a file that ends in zeros was cut short, one that ends in this byte was whole once
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from txobserver.events import Event, Removal, Settle, TxDequeue
from txobserver.ids import Position

MAGIC = b"TXHA"
FORMAT_VERSION = 3
"""Version 2, whose steps of configuration have no terms, and version 1, which has fewer kinds of events too, can be
read."""
MAX_PAYLOAD = 1 << 30
_HEADER = struct.Struct(">4sHHIIQQIQ")
_CRC = struct.Struct(">I")
HEADER_SIZE = _HEADER.size + _CRC.size
TRAILER = b"\xa5"

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Event])
_KINDS: dict[Any, type[msgspec.Struct]] = {kind.__struct_config__.tag: kind for kind in get_args(Event)}


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
        events: list[Event] = _decoder.decode(memoryview(self.data)[HEADER_SIZE : -len(TRAILER)])
        return events

    def of_a_later_version(self) -> bool:
        """Whether events that cannot be decoded may be those of a later version: another kind, fields or reason."""
        try:
            found = msgspec.msgpack.decode(memoryview(self.data)[HEADER_SIZE : -len(TRAILER)], type=list[list[Any]])
        except (ValueError, RecursionError):
            return False
        return any(_is_later(each) for each in found)

    def part(self, first: int, last: int) -> Frame:
        """Its events from sequence ``first`` to ``last``, as a frame of their own, written at the same time."""
        if (first, last) == (self.first, self.last):
            return self
        return encode_frame(
            self.generation, first, self.events()[first - self.first : last - self.first + 1], self.time_ms
        )


def _is_later(event: list[Any]) -> bool:
    """Of an event as a plain array: its kind, then its fields."""
    if not event or not isinstance(event[0], int):
        return False
    kind = _KINDS.get(event[0])
    if kind is None or len(event) - 1 > len(kind.__struct_fields__):
        return True
    if kind not in (Settle, TxDequeue) or len(event) - 1 < len(kind.__struct_fields__):
        return False
    return isinstance(event[-1], int) and event[-1] > max(Removal)


def encode_frame(generation: int, first: int, events: list[Event], time_ms: int) -> Frame:
    """One frame for these events, whose sequences run from ``first``.

    Raises FrameError where it would be larger than any frame that is read: no node may count on it.
    """
    payload = _encoder.encode(events)
    if len(payload) > MAX_PAYLOAD:
        raise FrameError(f"{len(events)} events take {len(payload)} bytes; a frame holds {MAX_PAYLOAD} at most")
    count, crc = len(events), zlib.crc32(payload)
    header = _HEADER.pack(MAGIC, FORMAT_VERSION, 0, len(payload), crc, generation, first, count, time_ms)
    return Frame(generation, first, count, time_ms, b"".join((header, _CRC.pack(zlib.crc32(header)), payload, TRAILER)))


def decode_frame(data: bytes | memoryview, offset: int = 0) -> tuple[Frame, int]:
    """The frame that begins at ``offset`` and the offset behind it.

    Raises TornFrame, DamagedFrame or UnknownFormat; never returns a frame whose checksum does not match.
    """
    available = len(data) - offset
    if available < HEADER_SIZE:
        raise TornFrame(f"{available} bytes at offset {offset} are less than a frame header")
    header = bytes(data[offset : offset + _HEADER.size])
    magic, version, _flags, length, crc, generation, first, count, time_ms = _HEADER.unpack(header)
    if magic != MAGIC:
        raise DamagedFrame(f"no frame begins at offset {offset}")
    if _CRC.unpack_from(data, offset + _HEADER.size)[0] != zlib.crc32(header):
        raise DamagedFrame(f"the header of the frame at offset {offset} is damaged")
    if not 1 <= version <= FORMAT_VERSION:
        raise UnknownFormat(f"format version {version} at offset {offset}; this version reads 1 to {FORMAT_VERSION}")
    if length > MAX_PAYLOAD:
        raise DamagedFrame(f"the frame at offset {offset} says that it has {length} bytes")
    end = offset + HEADER_SIZE + length + len(TRAILER)
    if end > len(data):
        raise TornFrame(f"the frame at offset {offset} needs {end - len(data)} bytes more")
    whole = bytes(data[offset:end])
    if whole[-1:] != TRAILER or zlib.crc32(memoryview(whole)[HEADER_SIZE : -len(TRAILER)]) != crc:
        raise DamagedFrame(f"the checksum of the frame at offset {offset} does not match")
    return Frame(generation, first, count, time_ms, whole), end


def header_is_intact(data: bytes | memoryview) -> bool:
    """Whether at least the header of a frame stands at the beginning of these bytes, as it was written."""
    if len(data) < HEADER_SIZE or bytes(data[: len(MAGIC)]) != MAGIC:
        return False
    return bool(_CRC.unpack_from(data, _HEADER.size)[0] == zlib.crc32(data[: _HEADER.size]))


def bytes_behind(header: bytes | memoryview) -> int:
    """How many bytes belong to a frame behind its header (at least HEADER_SIZE bytes of which are given)."""
    return len(TRAILER) + int(_HEADER.unpack_from(header)[3])


def last_of(header: bytes | memoryview) -> int:
    """Sequence of the last event of the frame with this header (at least HEADER_SIZE bytes are given)."""
    _, _, _, _, _, _, first, count, _ = _HEADER.unpack_from(header)
    return int(first + count - 1)
