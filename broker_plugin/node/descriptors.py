"""How many files and sockets this process can have open, and which of them clients leave to the node itself.

A node opens files while it serves: the next segment of its log, a segment that a backup is read, pipes to a process.
Where clients hold every descriptor it cannot, and its log is broken. So the highest descriptors are reserved. The
system gives out the lowest number that is free: a connection with one of the reserve came when all below were taken.
"""

from __future__ import annotations

import asyncio
import logging
import resource

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
            log.warning("the limit of open files stays at %d: %s", soft, error)
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Room:
    """The descriptors below ``end``, which these may have (in words) who connect."""

    def __init__(self, end: int, who: str) -> None:
        self.end = end
        self._who = who
        self._refusing = False

    def admit(self, transport: asyncio.BaseTransport, owed: int = 0) -> bool:
        """Whether who has just connected can stay; ``owed``: how many more those who are here may take."""
        connected = transport.get_extra_info("socket")
        if connected is None:
            return True
        free: int = self.end - connected.fileno() - owed
        if free <= 0 and not self._refusing:
            log.warning(
                "%s are refused: %d files and connections are open, or soon will be, and the rest is the node's own; "
                "find out who connects, or raise the limit of open files (ulimit -n, LimitNOFILE)",
                self._who,
                self.end,
            )
        self._refusing = free <= 0 or (self._refusing and free < self.end // CALM_PART)
        return free > 0


def rooms(limit: int) -> tuple[Room, Room]:
    """Those of clients, and of other nodes and readers of the log, where ``limit`` files can be open at a time."""
    reserved = min(RESERVED, limit // RESERVED_PART)
    return Room(limit - reserved, "clients"), Room(limit - reserved // 2, "other nodes and readers")
