"""Events of a node's log that are about its HTTP door."""

from __future__ import annotations

from typing import NamedTuple


class HttpDoorEnded(NamedTuple):
    """The process that answers operators by HTTP has ended; another one is started after so many ``seconds``."""

    process: int
    status: int
    seconds: float


class HttpDoorListens(NamedTuple):
    """Operators are answered by HTTP at these ``addresses``."""

    addresses: str


class HttpDoorShut(NamedTuple):
    """The door cannot listen, and ends."""

    reason: str


class HttpDoorFailed(NamedTuple):
    """The door failed at a request, which was answered with 500. ``reason`` names the kind of the error."""

    method: str
    reason: str


class HttpDoorUnstarted(NamedTuple):
    """The process that answers operators by HTTP cannot be started, or cannot listen there; it is tried again after so
    many ``seconds``, and then after longer and longer pauses. It is told again when the reason is another one."""

    reason: str
    seconds: float
