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

from broker_plugin.logs.events import ConnectionsRefused, FilesLimited, FilesShort
from broker_plugin.logs.formats import tell

log = logging.getLogger("txha.node")
RESERVED = 128
"""Descriptors that no client gets; others who connect do not get half of them."""
RESERVED_PART = 4
"""Of a process that can open few, a quarter is reserved."""
PER_CLIENT = 2
"""Descriptors of a client that is passed on: its own, and the one to the primary."""
PER_PEER = 2
"""Of another node: one in each direction."""
PER_READER = 2
"""Of a reader of the log: its connection, and the segment that is read for it."""
STORE_FILES = 16
"""Of the store: the segment that is written, the next one, one that a backup is read, the queue state and its
checkpoints, and pipes to processes."""
UNAUTHENTICATED_PART = 2
"""At most half of what clients may have is for those that have not logged in; from one address, half of that."""
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

    @property
    def fit(self) -> int:
        """How many clients can be connected, if none of them is passed on."""
        return max(0, self.end - self._own)

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


class Place:
    """One client's in a room, from when it is taken until it is left: for two descriptors."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._taken = self._owes = False

    def take(self, transport: asyncio.BaseTransport) -> bool:
        """Whether who has just connected can stay."""
        if not self._room.admit(transport):
            return False
        self._taken = True
        self._room.pairs += 1
        self.owe(True)
        return True

    def leave(self) -> None:
        """It is gone, or served here."""
        if self._taken:
            self.owe(False)
            self._taken = False
            self._room.pairs -= 1

    def owe(self, owes: bool) -> None:
        """Whether this client may yet take its second descriptor: told to the room, as long as the client is in it."""
        if self._taken and owes != self._owes:
            self._owes = owes
            self._room.owed += 1 if owes else -1

    def open_socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        """The second descriptor. Raises OSError where only the node's own are left."""
        made = self._room.open_socket(family, kind, protocol)
        self.owe(False)
        return made


class Needs(NamedTuple):
    """What a node may have to open at a time beside what it has open when it has started.

    ``passes_on``: whether it passes clients on while another node is the primary.
    """

    clients: int
    peers: int
    readers: int
    passes_on: bool = True

    @property
    def each(self) -> int:
        """Descriptors of one client."""
        return PER_CLIENT if self.passes_on else 1

    @property
    def others(self) -> int:
        """Descriptors of other nodes, of readers, and of the store."""
        return PER_PEER * self.peers + PER_READER * self.readers + STORE_FILES


def compare(needs: Needs, limit: int, clients: Room) -> int:
    """How many clients fit. Says so where they are fewer than the configuration allows, before one is refused."""
    fit = max(0, (clients.fit - needs.others) // needs.each)
    if fit < needs.clients:
        needed = limit - clients.fit + needs.others + needs.each * needs.clients
        tell(log, logging.WARNING, FilesShort(limit, fit, needs.clients, needed))
    return fit


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
