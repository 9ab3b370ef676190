"""What the log says of connections that are refused: the first at once, then one line in a while, which counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from broker_plugin.logs.events import PeerRefused
from broker_plugin.logs.formats import tell

log = logging.getLogger("txha.links")
QUIET_SECONDS = 10.0
"""Between two lines of refused connections of one peer, or of all that have not said who they are."""


class PeerRefusals:
    """Of the connections that come to a node, or of those to the peer that it has ``dialled``.

    ``now``: seconds on a clock that only goes on.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, dialled: str = "") -> None:
        self._now = now
        self._dialled = dialled
        self._quiet: dict[str, float] = {}
        """Until when, by peer: names of our own configuration, and the empty one"""
        self._unsaid: dict[str, int] = {}

    def refused(self, peer: str, transport: asyncio.BaseTransport | None, reason: str) -> None:
        """A connection is closed; ``peer`` is empty before it has said its name under the seals."""
        now, peer = self._now(), peer or self._dialled
        if now < self._quiet.get(peer, now):
            self._unsaid[peer] = self._unsaid.get(peer, 0) + 1
            return
        self._quiet[peer] = now + QUIET_SECONDS
        tell(log, logging.WARNING, PeerRefused(peer, reason, _address(transport), self._unsaid.pop(peer, 0)))


def _address(transport: asyncio.BaseTransport | None) -> str:
    """The other end's, empty where it is not known any more."""
    found = None if transport is None else transport.get_extra_info("peername")
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else ""
