"""Torn or damaged: what an offset in a segment is at which no whole frame stands (docs/decisions/torn-or-damaged.md).

Torn is what a crash, or a power cut, can have left of the last group: it was never synced, so nothing of it was
acknowledged, and it may be cut. Everything else may have been acknowledged, and is damage.
"""

from __future__ import annotations

from recovery.store.groups import (
    GROUP_HEADER_SIZE,
    MAGIC,
    SECTOR,
    GroupHeader,
    decode_group_header,
    group_header_at,
    zero_sectors,
)
from txobserver.frames import (
    HEADER_SIZE,
    DamagedFrame,
    TornFrame,
    UnknownFormat,
    bytes_behind,
    decode_frame,
    header_is_intact,
    last_of,
)


def is_torn(segment: bytes, frames: int, at: int) -> bool:
    """Whether what stands at ``at`` in a segment with groups can be what is left of a group that was never synced.

    ``frames``: where the segment's own header ends. ``segment`` must be one reading of the whole file.
    """
    if at >= len(segment):
        return True
    here, group = lead(segment, frames, at)
    if here != at:
        return False
    return _group_is_torn(segment, group, at) if at < group.end else _header_is_torn(segment, at)


def lead(segment: bytes, frames: int, at: int) -> tuple[int, GroupHeader]:
    """How far groups and frames lead in a segment, up to ``at`` and over group headers there; the group begun last."""
    here, group = frames, GroupHeader(frames - GROUP_HEADER_SIZE, 0, 0)
    while here <= at:
        header = group_header_at(segment[here : here + GROUP_HEADER_SIZE], here)
        if header is not None:
            group, here = header, here + GROUP_HEADER_SIZE
        elif here < at and header_is_intact(segment[here : here + HEADER_SIZE]):
            here += HEADER_SIZE + bytes_behind(segment[here : here + HEADER_SIZE])
        else:
            break
    return here, group


def _group_is_torn(segment: bytes, group: GroupHeader, at: int) -> bool:
    """Something did not come of a group whose header did: its end, or sectors of it. Nothing was begun behind it."""
    if segment[group.end :].strip(b"\0") or _later_header_in(segment, at, group.end):
        return False
    if len(segment) < group.end or segment[group.end - 1] == 0:
        return True
    begins = group.offset + GROUP_HEADER_SIZE
    return zero_sectors(segment[begins : group.end], begins) > group.zeros


def _header_is_torn(segment: bytes, at: int) -> bool:
    """A group's header did not come: the file ends, or is zeros from there on, or a sector that it is in is."""
    if _later_header_in(segment, at + 1, -1):
        return False
    header, sector = segment[at : at + GROUP_HEADER_SIZE], SECTOR - at % SECTOR
    if len(header) < GROUP_HEADER_SIZE or not segment[at + GROUP_HEADER_SIZE - 1 :].strip(b"\0"):
        return True
    return any(part and not part.strip(b"\0") for part in (header[:sector], header[sector:]))


def _later_header_in(segment: bytes, since: int, end: int) -> bool:
    """Whether a group was begun behind ``since``: its header is where it says, or says that it goes on at ``end``."""
    at = segment.find(MAGIC, since)
    while at >= 0:
        header = decode_group_header(segment, at)
        if header is not None and header.offset in (at, end):
            return True
        at = segment.find(MAGIC, at + 1)
    return False


def is_torn_without_groups(rest: bytes, error: Exception) -> bool:
    """As ``is_torn``, of a segment of format version 1: ``rest`` is all from a frame's offset on, ``error`` what it is.

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
