"""The lines that one operator, or a stranger, sends over its connection, each within a bound of its own."""

from __future__ import annotations

import asyncio

PIECE = 1 << 16
"""Bytes that are read at a time, and that are read ahead at most while the other end waits for an answer."""


class Lines:
    """Of this connection. Only one of ``next`` and ``until_gone`` is awaited at a time; either can be cancelled."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._held = bytearray()
        self._ended = False

    async def next(self, most: int) -> bytes:
        """The next line with its end; what came last without one, or nothing, where the connection has ended.

        Raises OSError, and ValueError for a line of more than ``most`` bytes.
        """
        looked = 0
        while (end := self._held.find(b"\n", looked)) < 0 and not self._ended and len(self._held) <= most:
            looked = len(self._held)
            await self._read()
        size = end + 1 if end >= 0 else len(self._held)
        if size > most:
            raise ValueError(f"a line of more than {most} bytes")
        line = bytes(self._held[:size])
        del self._held[:size]
        return line

    async def until_gone(self) -> None:
        """Returns when the other end has said that nothing more comes, or has gone without a word.

        Of one that goes on sending, a piece is read ahead, and then it is not looked at any more.
        """
        try:
            while not self._ended and len(self._held) < PIECE:
                await self._read()
        except OSError:
            return
        if not self._ended:
            await asyncio.get_running_loop().create_future()

    async def _read(self) -> None:
        data = await self._reader.read(PIECE)
        self._ended = not data
        self._held += data
