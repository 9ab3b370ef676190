"""What the log says of connections that are refused: the first at once, then one line in a while, which counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from broker_plugin.logs.events import PeerRefused
from broker_plugin.logs.formats import tell
from broker_plugin.logs.seldom import Seldom

log = logging.getLogger("txha.links")


class PeerRefusals:
    """Of the connections that come to a node, or of those to the peer that it has ``dialled``.

    ``now``: seconds on a clock that only goes on.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, dialled: str = "") -> None:
        self._dialled = dialled
        self._seldom = Seldom(now)

    def refused(self, peer: str, transport: asyncio.BaseTransport | None, reason: str) -> None:
        """A connection is closed; ``peer`` is empty before it has said its name under the seals."""
        peer = peer or self._dialled  # of our own configuration, so there are few
        if (unsaid := self._seldom.due(peer)) is not None:
            tell(log, logging.WARNING, PeerRefused(peer, reason, address_of(transport), unsaid))


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """The other end's, empty where it is not known any more."""
    found = None if transport is None else transport.get_extra_info("peername")
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else ""
