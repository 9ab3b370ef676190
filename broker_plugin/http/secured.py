"""HTTPS: the door's connections are encrypted by the certificates of its node.

Promise: what holds for connections without TLS holds for those with it, of which few are in their handshake at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.http.protocol import MOST_CONNECTIONS, BoundedProtocol
from broker_plugin.logs.formats import tell
from broker_plugin.logs.tls_events import CertificateUnread
from broker_plugin.tls.accepting import TlsDoor, TlsRefusals
from broker_plugin.tls.contexts import CertificatesInForce, Contexts
from broker_plugin.tls.files import TlsError, TlsFiles

log = logging.getLogger("txha.http")


class Secured:
    """The certificates of a node with these ``files``. Raises TlsError when it is made."""

    def __init__(self, files: TlsFiles) -> None:
        self._contexts = Contexts(files)
        self._former: CertificatesInForce | None = None
        self._guard = Guard(lambda reason: None, lambda reason: os._exit(1))  # its node starts another one
        self._refusals = TlsRefusals("operators")
        self._handshakes: dict[TlsDoor, None] = {}

    def __call__(self, **of_uvicorn: Any) -> TlsDoor:
        """The protocol of one more connection, as uvicorn makes one."""
        make = cast(Callable[[], GuardedProtocol], lambda: BoundedProtocol(**of_uvicorn))
        return TlsDoor(self._guard, lambda: self._contexts.clients("ignore"), make, self, self._refusals)

    def changed(self, read: bool) -> None:
        """The node has read its files again, or goes back to what was in force before that."""
        if read:
            try:
                self._former = self._contexts.reload()
            except TlsError as error:
                tell(log, logging.ERROR, CertificateUnread(str(error)))
        elif self._former is not None:
            self._former = self._contexts.use(self._former)

    # -- Handshakes of the doors

    def arrive(self, door: TlsDoor, transport: asyncio.BaseTransport) -> bool:
        """The oldest makes room."""
        self._handshakes[door] = None
        if len(self._handshakes) > MOST_CONNECTIONS:
            oldest = next(iter(self._handshakes))
            self.leave(oldest)  # it is gone only when the loop has closed it, and more may come before that
            oldest.abort()
        return True

    def leave(self, door: TlsDoor) -> None:
        """Its handshake is over, or it is gone."""
        self._handshakes.pop(door, None)
