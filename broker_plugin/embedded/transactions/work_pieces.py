"""The ends of a unit of work, piece by piece, in as many turns as it takes: what many settled messages cost.

No reader sees half of it, as with all pieces (``broker_plugin.embedded.queues.pieces``). To tell the observer of
acknowledgements, and to free consumers, shows nothing. What a commit brings to this node's own queues, and what it
gives back, counts in all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_plugin.embedded.queues.consumer import Held
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.turn import LOOKS_A_STEP, Turn, steps_now
from broker_plugin.embedded.topology.topology import Route
from txobserver.events import Message, Removal

if TYPE_CHECKING:
    from txobserver.ports.ledger import Work

Settled = list[tuple[int, Held, Removal | None]]


class Telling:
    """Tells an observer of acknowledgements: those of one queue that are in one piece together."""

    def __init__(self, turn: Turn, settled: Settled, observer: Callable[[], Work], done: Callable[[], None]) -> None:
        self._turn = turn
        self._settled = settled
        self._observer = observer
        self._done = done
        self._at = 0

    def run(self) -> None:
        """As much as this turn has room for."""
        piece = self._settled[self._at : self._at + steps_now(self._turn)]
        self._at += len(piece)
        self._turn.spent += len(piece)
        removals: dict[tuple[DurableQueue, Removal], list[int]] = {}
        for _, (queue, offset, _consumer), reason in piece:
            if reason is not None and isinstance(queue, DurableQueue) and not queue.deleted:
                removals.setdefault((queue, reason), []).append(offset)
        for (of, why), offsets in removals.items():
            if entries := of.entries(offsets):
                self._observer().dequeue(of.number, entries, why)
        if self._at < len(self._settled):
            self._turn.later(self.run)
        else:
            self._done()


class Freeing:
    """What a prepared branch dequeues counts for no channel's prefetch any more. Ends early if ``over``."""

    def __init__(self, turn: Turn, settled: Settled, over: Callable[[], bool], done: Callable[[], None]) -> None:
        self._turn = turn
        self._settled = settled
        self._over = over
        self._done = done
        self._at = 0

    def run(self) -> None:
        """As much as this turn has room for."""
        settled, first = self._settled, self._at
        last = min(len(settled), first + steps_now(self._turn))
        for at in range(first, last):
            tag, (queue, offset, consumer), reason = settled[at]
            if consumer is not None:
                consumer.restore()
                settled[at] = tag, (queue, offset, None), reason
        self._at = last
        self._turn.spent += last - first
        if last < len(settled):
            self._turn.later(self._go_on)
        else:
            self._done()

    def _go_on(self) -> None:
        if not self._over():
            self.run()


class Committing:
    """What a commit means for this node's own queues, and for what goes back to its queue."""

    def __init__(
        self, turn: Turn, local: list[tuple[Route, Message]], settled: Settled, done: Callable[[], None]
    ) -> None:
        self._turn = turn
        self._local = local
        self._settled = settled
        self._done = done
        self._at = 0
        self._unseen: dict[Queue, int] = {}

    def run(self) -> None:
        """As much as this turn has room for."""
        first, local = self._at, len(self._local)
        end = local + len(self._settled)
        last, steps = self._piece(first, end)
        whole = first == 0 and last == end
        for at in range(first, last):
            if at < local:
                route, message = self._local[at]
                for queue in route.local:
                    self._enqueue(queue, message, whole)
            else:
                _, held, reason = self._settled[at - local]
                self._settle(held, reason, whole)
        self._at = last
        self._turn.spent += steps
        if last < end:
            self._turn.later(self.run)
            return
        for filled, count in self._unseen.items():
            filled.end_return(count)
        self._done()

    def _piece(self, first: int, end: int) -> tuple[int, int]:
        """Where the piece that begins there ends, and its steps: a message to many queues is several."""
        local, room = len(self._local), steps_now(self._turn)
        at, steps = first, 0
        while at < end and steps < room:
            steps += 1
            if at < local:
                steps += len(self._local[at][0].local) // LOOKS_A_STEP
            at += 1
        return at, steps

    def _enqueue(self, queue: LocalQueue, message: Message, whole: bool) -> None:
        if not whole and not queue.deleted:
            self._hide(queue, 1)
            queue.came_unseen()
        queue.enqueue(message)

    def _settle(self, held: Held, reason: Removal | None, whole: bool) -> None:
        queue, offset, consumer = held
        if reason is None:
            if whole:
                queue.give_back((offset,))
            elif not queue.deleted:
                self._hide(queue, 0)
                self._unseen[queue] += queue.give_back_unseen((offset,))
        elif not isinstance(queue, DurableQueue):
            queue.settle((offset,), reason)
        if consumer is not None:
            consumer.restore()

    def _hide(self, queue: Queue, count: int) -> None:
        if queue not in self._unseen:
            self._unseen[queue] = 0
            queue.begin_return()
        self._unseen[queue] += count
