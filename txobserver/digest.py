"""The hash of one message, and the sums of it that are the queues' digests.

It is asked for once per message and node. Compiled, it is a few machine instructions on 64-bit integers that wrap
round. In plain Python integers grow instead, and the low 64 bits of a sum are the same.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

MASK: Final = (1 << 64) - 1
_LARGEST: Final = (1 << 63) - 1


def mix(offset: int, rid: int) -> int:
    """A 64-bit hash of one message's offset and id, to be summed up into a queue's digest."""
    return int(_mixed(offset, rid)) & MASK


class Tally:
    """A queue without its messages: how many there are, their digest, and up to where they may have been handed out."""

    def __init__(self, count: int = 0, digest: int = 0, watermark: int = 0) -> None:
        self.count = count
        self.watermark = watermark
        self._sum: i64 = _signed(digest)

    @property
    def digest(self) -> int:
        """The sum of all hashes, modulo 2**64."""
        return int(self._sum) & MASK

    def put(self, offset: int, rid: int) -> None:
        """A message came."""
        self.count += 1
        self._sum += _mixed(offset, rid)

    def take(self, offset: int, rid: int) -> None:
        """A message went."""
        self.count -= 1
        self._sum -= _mixed(offset, rid)


def _mixed(offset: int, rid: int) -> i64:
    """``mix``, as 64 bits with a sign. The constants of the wrapping form are those of the other one, less 2**64."""
    largest: i64 = _LARGEST
    if largest + 1 < 0 and not (offset | rid) >> 62:  # compiled, and both numbers fit
        value: i64 = i64(offset) * -7046029254386353131 ^ i64(rid) * -4417276706812531889
        value = (value ^ (value >> 29 & 0x7FFFFFFFF)) * -4658895280553007687
        return value ^ (value >> 32 & 0xFFFFFFFF)
    mixed = (offset * 0x9E3779B97F4A7C15 ^ rid * 0xC2B2AE3D27D4EB4F) & MASK
    mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & MASK
    return _signed(mixed ^ mixed >> 32)


def _signed(bits: int) -> i64:
    return i64(bits if bits <= _LARGEST else bits - MASK - 1)
