"""How many files and sockets this process can have open, and which of them clients leave to the node itself.

A node opens files while it serves: the next segment of its log, a segment that a backup is read, pipes to a process.
Where clients hold every descriptor it cannot, and its log is broken. So the highest descriptors are reserved, and no
connection keeps one of these: not one that comes, and not one that is made for a client. The system gives out the
lowest number that is free, so all below were taken when it gave out one of the reserve. It does not hold the other way
round: below a high number there may be many that have become free, so what is owed to clients is counted besides.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from contextlib import suppress
from typing import NamedTuple

from broker_plugin.logs.events import ConnectionsRefused, FilesLimited
from broker_plugin.logs.formats import tell

log = logging.getLogger("txha.node")
RESERVED = 128
"""Descriptors that no client gets; others who connect do not get half of them."""
RESERVED_PART = 4
"""Of a process that can open few, a quarter is reserved."""
CALM_PART = 8
"""When an eighth of a room has become free, the next refusal is news."""


def raise_limit() -> int:
    """Let this process open as many files as it may at all; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:  # a limit without end, where the system has one
            tell(log, logging.WARNING, FilesLimited(soft, str(error)))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_now() -> int:
    """How many descriptors this process has open; 0 where the system does not say."""
    with suppress(OSError):
        return len(os.listdir("/dev/fd"))
    return 0


class Room:
    """The descriptors below ``end``, which these may have (in words) who connect.

    ``own``: how many of them the node has itself, about.
    """

    def __init__(self, end: int, who: str, own: int = 0) -> None:
        self.end = end
        self.pairs = 0
        """Clients that are passed on, or may be: two descriptors each, whether the second is open yet or not"""
        self.owed = 0
        """How many of these second ones are not open"""
        self._who = who
        self._own = own
        self._refusing = False

    def admit(self, transport: asyncio.BaseTransport) -> bool:
        """Whether who has just connected can stay."""
        connected = transport.get_extra_info("socket")
        if connected is None:
            return True
        last_pair = 2 * self.pairs + 1
        return self._is_left(self.end - max(connected.fileno() + self.owed, self._own + last_pair))

    def open_socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        """A new one that does not block. Raises OSError where only the reserve is left for it.

        From here to its end it has its descriptor: whatever else is opened while it connects takes another one.
        """
        made = socket.socket(family, kind, protocol)
        if not self._is_left(self.end - made.fileno()):
            made.close()
            raise OSError(errno.EMFILE, "the descriptors that are left are the node's own")
        made.setblocking(False)
        return made

    def _is_left(self, free: int) -> bool:
        if free <= 0 and not self._refusing:
            tell(log, logging.WARNING, ConnectionsRefused(self._who, self.end))
        self._refusing = free <= 0 or (self._refusing and free < self.end // CALM_PART)
        return free > 0


class Rooms(NamedTuple):
    """Who may have how much."""

    clients: Room
    others: Room
    """Other nodes and readers of the log"""
    operators: Room
    """At the administration port"""


def rooms(limit: int) -> Rooms:
    """Where ``limit`` files can be open at a time. To be called when the node has opened what it starts with."""
    reserved, own = min(RESERVED, limit // RESERVED_PART), open_now()
    half = limit - reserved // 2
    return Rooms(
        Room(limit - reserved, "clients", own),
        Room(half, "other nodes and readers", own),
        Room(half, "operators", own),
    )
