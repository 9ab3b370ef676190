"""MemoryBudget: how many bytes a broker holds for its clients, by kind and by client, and whether that is too much.

Promise: what clients make a node keep in memory is counted, and above the high mark no more of it is taken from who
publishes, so a node does not end for want of memory.

Algorithm: who keeps something for a client tells the client's ``Holder`` so when it takes it, and when it lets it go.
The sum of all holders is kept beside them, so a look at it costs nothing. What transactions and branches hold in
tx-queues is counted where their limits are (``txobserver.work_limits``), and added at each look.

The alarm has two marks, so that it does not come and go with every message: above ``high`` it is on, until no more
than ``low`` is held. Above ``hard`` clients that hold much are closed, the one that holds most first.

What the budget does not count is bounded elsewhere: what is declared (``Topology.most``), what waits to pass the commit
point, and the windows of durable queues (docs/architecture.md, "Back pressure").
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txobserver.work_limits import OpenWork

RECEIVED: Final = 0
"""Frames and bodies that have come and are not carried out: unfinished bodies, and what waits behind a request"""
ANSWERS: Final = 1
"""What is to be sent, or was given to the system and not read by the client"""
CACHES: Final = 2
"""What is remembered of a connection's publishes and deliveries, to be quicker the next time"""
QUEUES: Final = 3
"""Queues that are in this node's memory only, with their messages: those that are not durable, or exclusive"""
WORK: Final = 4
"""What waits in transactions and branches for their end beside their tx-queues"""
KINDS: Final = ("received", "answers", "caches", "queues", "work")

MESSAGE_BYTES: Final = 200
"""That a message in memory is counted for beside its properties and body."""
QUEUE_BYTES: Final = 2000
"""That a queue of this node's memory is counted for beside its messages and arguments"""
EVENT_BYTES: Final = 400
"""That an event of an open transaction is counted for beside its message: the event, and its place in the buffer."""


class MemoryMarks(NamedTuple):
    """In bytes. ``connection``: the share of one connection, beyond which it is closed while the alarm is on.

    ``declared``: what names and arguments of all that is declared may take (``topology.sizes``).
    """

    low: int = 576 << 20
    high: int = 768 << 20
    hard: int = 1280 << 20
    connection: int = 320 << 20
    declared: int = 256 << 20


class MemoryBudget:
    """``held``: the sum of what all holders hold, ``kinds`` the same by kind. ``alarm``: whether it is too much."""

    def __init__(self, marks: MemoryMarks | None = None) -> None:
        self.marks = marks if marks is not None else MemoryMarks()
        self.held = 0
        self.kinds = [0] * len(KINDS)
        self.alarm = False
        self.shared = Holder(self)
        """Of what belongs to no client: queues that are not exclusive"""

    def look(self, total: int) -> bool:
        """Whether the alarm is on, now that so many bytes are held in all (``total_with``)."""
        self.alarm = total > (self.marks.low if self.alarm else self.marks.high)
        return self.alarm

    def total_with(self, work: OpenWork) -> int:
        """Bytes that are held in all, with what transactions and branches have open at the primary."""
        return self.held + work_bytes(work)

    def forget_shared(self) -> None:
        """The broker forgets its queues: what belonged to no client is held no more."""
        self.shared.detach()
        self.shared = Holder(self)


class Holder(OpenWork):
    """What is held for one client, or for none: ``held`` bytes, and as ``OpenWork`` what it has open.

    ``kinds``: ``held``, by kind. ``branches``: how many branches it has begun that have not ended.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        super().__init__()
        self.held = 0
        self.kinds = [0] * len(KINDS)
        self.branches = 0
        self._budget: MemoryBudget | None = budget

    @property
    def counts(self) -> bool:
        """Whether it has not been detached."""
        return self._budget is not None

    @property
    def total(self) -> int:
        """Bytes that would be free without this client."""
        return self.held + work_bytes(self)

    def hold(self, kind: int, size: int) -> None:
        """So many bytes more of this kind are held; fewer, if ``size`` is below zero."""
        budget = self._budget
        if budget is not None:
            self.held += size
            self.kinds[kind] += size
            budget.held += size
            budget.kinds[kind] += size

    def now_holds(self, kind: int, size: int) -> None:
        """So many bytes of this kind are held now, whatever that was."""
        before = self.kinds[kind]
        if size != before:
            self.hold(kind, size - before)

    def detach(self) -> None:
        """All of it is forgotten, and what is let go from here on counts for nothing any more."""
        for kind in range(len(KINDS)):
            self.now_holds(kind, 0)
        self._budget = None


def work_bytes(work: OpenWork) -> int:
    """What open transactions and branches hold: their messages, and their events."""
    return work.open_bytes + EVENT_BYTES * work.open_events
