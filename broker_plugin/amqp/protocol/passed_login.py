"""The login of a client that a backup passes on, read on the way.

A primary of an earlier version, or a host broker, sees the backup's address. So where a user may come from is judged at
the node that the client has reached too: what completes a login that may not come from there is never passed on.
Frames are read as ``Connection`` reads them; what it would refuse is passed on to be refused there. Of the answers only
that is read which says that the client has logged in.
"""

from __future__ import annotations

from pamqp import commands

from broker_plugin.amqp.protocol.codec import (
    FRAME_START,
    METHOD,
    OVERHEAD,
    PROTOCOL_HEADER,
    decode_method,
)
from broker_plugin.amqp.protocol.logins import LOOPBACK_ONLY, credentials_in, may_come_from
from broker_plugin.amqp.protocol.settings import FRAME_MIN_SIZE
from broker_plugin.embedded.errors import AmqpError

TUNE = b"\x00\x0a\x00\x1e"
"""How connection.tune begins, which answers a login that is not refused"""
LONGEST_ANSWER = 1 << 17
"""Bytes of a frame before that"""


class PassedLogin:
    """Of one client. ``passed``: there is nothing (more) to read, whatever it sends may be passed on."""

    def __init__(self, address: str) -> None:
        self.passed = may_come_from(LOOPBACK_ONLY, address)
        self._address = address
        self._partial = b""
        self._begun = False

    def read(self, data: bytes) -> commands.Connection.StartOk | None:
        """Read along; the login, if it may not come from there."""
        if self.passed:
            return None
        data = self._partial + data
        at = 0
        if not self._begun:
            if len(data) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(data):
                self._partial = data
                return None
            self._begun = True
            at = len(PROTOCOL_HEADER)
            self.passed = not data.startswith(PROTOCOL_HEADER)
        while not self.passed and len(data) - at >= OVERHEAD:
            kind, number, size = FRAME_START.unpack_from(data, at)
            end = at + size + OVERHEAD
            if size + OVERHEAD > FRAME_MIN_SIZE:
                self.passed = True
            elif end > len(data):
                break
            elif kind == METHOD and number == 0:
                self.passed = True
                return self._judged(data[at + OVERHEAD - 1 : end - 1])
            at = end
        self._partial = b"" if self.passed else data[at:]
        return None

    def _judged(self, payload: bytes) -> commands.Connection.StartOk | None:
        try:
            method = decode_method(payload)
        except AmqpError:
            return None
        if not isinstance(method, commands.Connection.StartOk):
            return None
        credentials = credentials_in(method)
        may = credentials is None or may_come_from(credentials.user, self._address)
        return None if may else method


class PassedAnswers:
    """What one client is answered. ``logged_in``: its login was not refused, or this cannot be known from here."""

    def __init__(self) -> None:
        self.logged_in = False
        self._partial = b""

    def read(self, data: bytes) -> None:
        """Read along."""
        data, at = self._partial + data, 0
        while not self.logged_in and len(data) - at >= FRAME_START.size + len(TUNE):
            kind, number, size = FRAME_START.unpack_from(data, at)
            method = at + FRAME_START.size
            tuned = kind == METHOD and number == 0 and data.startswith(TUNE, method)
            if size > LONGEST_ANSWER or tuned:
                self.logged_in = True
            elif at + size + OVERHEAD > len(data):
                break
            at += size + OVERHEAD
        self._partial = b"" if self.logged_in else data[at:]
