"""What a client asks for in one request and what takes many steps: done piece by piece, in as many turns as it takes.

No reader sees half of it. An acknowledgement takes what it settles out of the client's hands, which only that client
could know, and it is answered last. What is given back becomes ready in all of its queues at once, when the last piece
has been done: until then each of them hands nothing out, and counts none of it (``Queue.begin_return``). The channel
carries out no other request meanwhile. A channel that ends gives back what it still holds in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from broker_plugin.embedded.queues.consumer import Held, unheard
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.queues.unacked import Unacked
from txobserver.events import Removal

Entries = list[tuple[int, Held]]
Take = Callable[[int], Entries]
"""The next of what there is to do, so many at most; nothing when all is done."""


Settled = list[tuple[int, Held, Removal | None]]
"""What a unit of work has settled: delivery tags, what was held under them, reasons"""


class Listed:
    """Takes from a list, which holds what is left: in the end there is nothing to be let go of in one go."""

    def __init__(self, settled: Settled) -> None:
        self._settled = settled

    def take(self, most: int) -> Entries:
        """The next of it."""
        entries = [(tag, held) for tag, held, _ in self._settled[:most]]
        del self._settled[:most]
        return entries


class UpTo:
    """Takes what a channel holds, up to a tag."""

    def __init__(self, unacked: Unacked[Held], tag: int) -> None:
        self._unacked = unacked
        self._tag = tag

    def take(self, most: int) -> Entries:
        """The first of it."""
        return self._unacked.take(self._tag, most)


class Both:
    """Takes from one, and then from another."""

    def __init__(self, first: Take, second: Take) -> None:
        self._first = first
        self._second = second

    def take(self, most: int) -> Entries:
        """The next."""
        entries = self._first(most)
        return entries + self._second(most - len(entries)) if len(entries) < most else entries


class Pieces(ABC):
    """One request. ``run`` does the first piece at once; ``done`` is called when the last one has been done."""

    def __init__(self, turn: Turn, take: Take, done: Callable[[], None] = unheard) -> None:
        self._turn = turn
        self._take = take
        self._done = done

    def run(self) -> None:
        """Do as much as this turn has room for."""
        most = self._turn.left
        entries = self._take(most)
        self._turn.spent += len(entries)
        last = len(entries) < most
        self.piece(entries, last)
        if last:
            self._done()
        else:
            self._turn.later(self.run)

    @abstractmethod
    def piece(self, entries: Entries, last: bool) -> None:
        """Do this; ``last``: nothing comes behind it."""


class SettlingPieces(Pieces):
    """Messages leave their queues for good."""

    def __init__(self, turn: Turn, take: Take, reason: Removal, done: Callable[[], None]) -> None:
        super().__init__(turn, take, done)
        self._reason = reason

    def piece(self, entries: Entries, last: bool) -> None:
        for queue, offsets in by_queue(entries).items():
            queue.settle(offsets, self._reason)


class GivingBack(Pieces):
    """Messages stand in their queues again."""

    def __init__(self, turn: Turn, take: Take, done: Callable[[], None] = unheard) -> None:
        super().__init__(turn, take, done)
        self._unseen: dict[Queue, int] = {}

    def piece(self, entries: Entries, last: bool) -> None:
        unseen = self._unseen
        for queue, offsets in by_queue(entries).items():
            if last and queue not in unseen:
                queue.give_back(offsets)
                continue
            if queue not in unseen:
                unseen[queue] = 0
                queue.begin_return()
            unseen[queue] += queue.give_back_unseen(offsets)
        if last:
            for queue, count in unseen.items():
                queue.end_return(count)


class Handing(Pieces):
    """Messages are handed on one by one, as they were held: to a unit of work, or back to the client."""

    def __init__(self, turn: Turn, take: Take, to: Callable[[Entries], None], done: Callable[[], None]) -> None:
        super().__init__(turn, take, done)
        self._to = to

    def piece(self, entries: Entries, last: bool) -> None:
        if entries:
            self._to(entries)


def by_queue(entries: Entries) -> dict[Queue, list[int]]:
    """The offsets in each queue. Their consumers may hold that many more."""
    found: dict[Queue, list[int]] = {}
    for _, (queue, offset, consumer) in entries:
        found.setdefault(queue, []).append(offset)
        if consumer is not None:
            consumer.restore()
    return found
