"""BoundedProtocol: uvicorn's HTTP protocol with bounds on how many connect, and on how long each may take.

Promise: whatever clients send or do not send, operators who come after them are answered. A request comes whole and its
answer is taken within a time, or the connection ends; and where there are too many connections, the oldest that has not
been answered anything makes room for the next one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0
"""From the connection's begin, or its last answer, to the next answer: headers, body, work, and taking the answer."""
KEEP_ALIVE_SECONDS = 5
"""For which a connection may ask nothing after an answer."""
MOST_CONNECTIONS = 128
"""Of one port."""
MOST_HEADER = 16 << 10
"""Bytes of a request's line and headers; more is refused."""


class BoundedProtocol(H11Protocol):
    """One connection."""

    answered = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It stays if there is room, or if one that has not been answered can go for it."""
        if len(self.connections) >= MOST_CONNECTIONS and not self._make_room():
            transport.abort()
            return
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What cannot be parsed ends the connection, and is no error of this process."""
        if self.transport is None:
            return
        try:
            super().data_received(data)
        except Exception:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Another request may come."""
        self.answered += 1
        self._begin()
        super().on_response_complete()

    def _begin(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _make_room(self) -> bool:
        waiting: list[Any] = [each for each in self.connections if not getattr(each, "answered", 1)]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each._deadline.when())
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True
