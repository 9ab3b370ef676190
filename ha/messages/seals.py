"""Seals: every message of a link carries a MAC over its number and its bytes, under a key of its direction.

    message shorter than LONG:  length (4 bytes, big endian), body, tag (16)
    longer:                     length, length of the head (4), body, tag (16)
    from ANNOUNCED on:          length, length of the head, tag of these two (16), body, tag (16)

So nothing can be injected, changed, left out, repeated, or turned round to its sender: the receiver counts as the
sender does, and each direction of each connection has a key that no other one has (``ha.messages.proof``). What is
long is hashed with SHA-256 behind its *head*, and the tag is over number, lengths, head and hash: a frame that goes to
several backups is hashed once, and not copied. A length from ANNOUNCED on has a tag of its own, which is checked before
more is kept: bytes that were changed on the way cannot make the receiver wait for a gigabyte.

The tags are BLAKE2b's, keyed; each of the three has a personalisation of its own, so none can stand for another.
"""

from __future__ import annotations

import struct
from hashlib import blake2b, sha256
from hmac import compare_digest

TAG = 16
"""Bytes of a tag"""
LONG = 1 << 9
"""Bytes of a message from which on it is hashed first: below, BLAKE2b over everything costs less"""
ANNOUNCED = 1 << 16
"""Bytes of a message from which on its length has a tag of its own"""
LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
_LENGTHS = struct.Struct(">II")
BROKEN = "bytes of it were changed, lost, injected or repeated on the way"


def hash_of(data: bytes | memoryview) -> bytes:
    """Of a part of a long message, for ``Sealer.seal_long``."""
    return sha256(data).digest()


def _macs(key: bytes) -> tuple[blake2b, blake2b, blake2b]:
    """Of short messages, of long ones, and of the lengths of those."""
    short, long, length = (
        blake2b(key=key, digest_size=TAG, person=person) for person in (b"txha short", b"txha long", b"txha length")
    )
    return short, long, length


class Sealer:
    """Seals what is sent in one direction of one connection, in this order."""

    def __init__(self, key: bytes) -> None:
        self._short, self._long, self._length = _macs(key)
        self._number = 0

    def seal(self, body: bytes) -> bytes:
        """A message as it is sent."""
        if len(body) >= LONG:
            return b"".join(self.seal_long(b"", body, hash_of(body)))
        mac = self._short.copy()
        mac.update(_NUMBER.pack(self._number) + body)
        self._number += 1
        return LENGTH.pack(len(body)) + body + mac.digest()

    def seal_long(self, head: bytes, tail: bytes, tail_hash: bytes) -> list[bytes]:
        """A message of at least LONG bytes in parts, of which ``tail`` is one, as it is; ``tail_hash`` is of it."""
        length = len(head) + len(tail)
        lengths = _LENGTHS.pack(length, len(head))
        numbered = _NUMBER.pack(self._number) + lengths
        self._number += 1
        mac = self._long.copy()
        mac.update(numbered + head + tail_hash)
        if length < ANNOUNCED:
            return [lengths + head, tail, mac.digest()]
        announced = self._length.copy()
        announced.update(numbered)
        return [lengths + announced.digest() + head, tail, mac.digest()]


class Unsealer:
    """Takes out of their seals the messages of one direction of one connection, in this order."""

    def __init__(self, key: bytes) -> None:
        self._short, self._long, self._length = _macs(key)
        self._number = 0
        self._announced = False
        """Whether the length of the long message that comes has been checked"""

    def message(self, buffer: bytearray, at: int, limit: int) -> tuple[bytes, int] | None:
        """The message that begins at ``at``, and where it ends; None where it has not come whole.

        Raises ValueError for one of more than ``limit`` bytes, and for one that is not what was sent there: then
        nothing that follows can be.
        """
        if len(buffer) - at < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(buffer, at)
        if length > limit:
            raise ValueError(f"a message of {length} bytes")
        return self._short_one(buffer, at, length) if length < LONG else self._long_one(buffer, at, length)

    def _short_one(self, buffer: bytearray, at: int, length: int) -> tuple[bytes, int] | None:
        begin = at + LENGTH.size
        end = begin + length
        if len(buffer) < end + TAG:
            return None
        body = bytes(buffer[begin:end])
        mac = self._short.copy()
        mac.update(_NUMBER.pack(self._number) + body)
        self._check(mac, buffer, end)
        return body, end + TAG

    def _long_one(self, buffer: bytearray, at: int, length: int) -> tuple[bytes, int] | None:
        begin = at + _LENGTHS.size
        if len(buffer) < begin:
            return None
        lengths = bytes(buffer[at:begin])
        numbered = _NUMBER.pack(self._number) + lengths
        if length >= ANNOUNCED:
            if not self._announced and not self._announces(numbered, buffer, begin):
                return None
            begin += TAG
        end = begin + length
        if len(buffer) < end + TAG:
            return None
        head = begin + _LENGTHS.unpack(lengths)[1]
        with memoryview(buffer) as view:
            body = bytes(view[begin:end])
            hashed = hash_of(view[head:end])
        mac = self._long.copy()
        mac.update(numbered + buffer[begin:head] + hashed)
        self._check(mac, buffer, end)
        self._announced = False
        return body, end + TAG

    def _announces(self, numbered: bytes, buffer: bytearray, begin: int) -> bool:
        """Whether the tag of the lengths has come. Raises ValueError for another one."""
        if len(buffer) < begin + TAG:
            return False
        mac = self._length.copy()
        mac.update(numbered)
        if not compare_digest(mac.digest(), bytes(buffer[begin : begin + TAG])):
            raise ValueError(BROKEN)
        self._announced = True
        return True

    def _check(self, mac: blake2b, buffer: bytearray, end: int) -> None:
        if not compare_digest(mac.digest(), bytes(buffer[end : end + TAG])):
            raise ValueError(BROKEN)
        self._number += 1
