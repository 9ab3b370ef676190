"""The hash of one message that queues' digests are sums of.

It is asked for once per message and node. Compiled, it is a few machine instructions: 64-bit integers that wrap round.
In plain Python integers grow, so the same is said with masks.
"""

from __future__ import annotations

from mypy_extensions import i64

MASK = (1 << 64) - 1
_WRAPS = not __file__.endswith(".py")
_LARGEST = (1 << 63) - 1


def mix(place: int, rid: int) -> int:
    """A 64-bit hash of one message's place and id, to be summed up into a queue's digest."""
    if _WRAPS and 0 <= place <= _LARGEST and 0 <= rid <= _LARGEST:
        return _wrapping(place, rid) & MASK
    value = (place * 0x9E3779B97F4A7C15 ^ rid * 0xC2B2AE3D27D4EB4F) & MASK
    value = (value ^ value >> 29) * 0xBF58476D1CE4E5B9 & MASK
    return value ^ value >> 32


def _wrapping(place: i64, rid: i64) -> int:
    """The same where a product keeps its low 64 bits; the constants are those of ``mix``, less 2**64."""
    value: i64 = place * -7046029254386353131 ^ rid * -4417276706812531889
    value = (value ^ (value >> 29 & 0x7FFFFFFFF)) * -4658895280553007687
    return int(value ^ (value >> 32 & 0xFFFFFFFF))
