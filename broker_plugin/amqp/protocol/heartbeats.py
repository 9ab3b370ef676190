"""When to send a heartbeat, and when to give a silent client up (AMQP 0-9-1, 4.2.7). Times in seconds."""

from __future__ import annotations


class Heartbeats:
    """``received`` and ``sent`` are set by the connection and taken back at each look at the clock."""

    def __init__(self, handshake_timeout: float) -> None:
        self.interval = 0
        self.opened = False
        self.closing = False
        self.received = False
        self.sent = False
        self._handshake_timeout = handshake_timeout
        self._last_received: float | None = None
        self._last_sent: float | None = None
        self._waiting_since: float | None = None

    def is_late(self, now: float, reading: bool) -> bool:
        """Whether the client has been silent for too long. While it is not read, it cannot be called silent."""
        if self.received or self._last_received is None or not reading:
            self.received = False
            self._last_received = now
        if self.opened and not self.closing:
            self._waiting_since = None
            return bool(self.interval) and now - self._last_received > 2 * self.interval
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since > self._handshake_timeout

    def is_due(self, now: float) -> bool:
        """Whether something must be sent lest the client gives us up. Half the interval is kept in reserve."""
        if self.sent or self._last_sent is None:
            self.sent = False
            self._last_sent = now
        return self.opened and bool(self.interval) and now - self._last_sent >= self.interval / 2
