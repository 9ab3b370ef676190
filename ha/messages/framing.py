"""Framing: messages with their length in front and no seal, where TLS protects the connection below them.

    length (4 bytes, big endian), body

It has the interface of ``ha.messages.seals``, in whose place it stands: TLS counts, authenticates and encrypts what is
sent, so a MAC over it would say the same once more (docs/decisions/tls-between-nodes.md).
"""

from __future__ import annotations

from ha.messages.seals import LENGTH, Sealer, Unsealer

_NO_KEY = bytes(32)


class Framer(Sealer):
    """Puts messages one behind the other."""

    def __init__(self) -> None:
        super().__init__(_NO_KEY)

    def seal(self, body: bytes) -> bytes:
        """A message as it is sent."""
        return LENGTH.pack(len(body)) + body

    def seal_long(self, head: bytes, tail: bytes, tail_hash: bytes) -> list[bytes]:
        """A message in parts, of which ``tail`` is one, as it is; ``tail_hash`` is not looked at."""
        return [LENGTH.pack(len(head) + len(tail)) + head, tail]


class Unframer(Unsealer):
    """Takes them apart."""

    def __init__(self) -> None:
        super().__init__(_NO_KEY)

    def message(self, buffer: bytearray, at: int, limit: int) -> tuple[bytes, int] | None:
        """The message that begins at ``at``, and where it ends; None where it has not come whole.

        Raises ValueError for one of more than ``limit`` bytes.
        """
        if len(buffer) - at < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(buffer, at)
        if length > limit:
            raise ValueError(f"a message of {length} bytes")
        begin = at + LENGTH.size
        end = begin + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            return bytes(view[begin:end]), end
