"""Events of a node's log about where it looks for the others (``broker_plugin.logs.events``)."""

from __future__ import annotations

from typing import NamedTuple


class AddressDiffers(NamedTuple):
    """Other nodes look for ``node`` at ``listed``, as the record says, and its file lets it listen on ``own``."""

    node: str
    listed: str
    own: str


class PeerMute(NamedTuple):
    """A peer takes connections and does not greet within so many seconds."""

    peer: str
    seconds: float


class PeerNowhere(NamedTuple):
    """A peer is said to be at a host that no resolver takes."""

    peer: str
    host: str
