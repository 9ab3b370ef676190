"""What clients do inside a transaction or branch: publishes and acknowledgements that take effect together, or not.

What concerns replicated queues is told to the observer; publishes are told at once, so that the backups have them when
the end comes. What concerns this node's own queues waits here until the end is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable

from broker_plugin.embedded.queues.consumer import Held
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.topology.topology import Route
from txobserver.events import Message, Removal
from txobserver.ports.ledger import Work


class UnitOfWork(ABC):
    """``settled``: (delivery tag, message, reason); no reason: it is given back to its queue."""

    def __init__(self) -> None:
        self.settled: list[tuple[int, Held, Removal | None]] = []
        self._local: list[tuple[Route, Message]] = []

    @abstractmethod
    def _observer(self) -> Work:
        """Who is told what concerns replicated queues."""

    def enqueue(self, route: Route, message: Message) -> None:
        """A publish inside it."""
        if route.durable:
            self._observer().enqueue(route.durable, message)
        if route.local:
            self._local.append((route, message))

    def settle(self, held: Iterable[tuple[int, Held]], reason: Removal | None) -> None:
        """Acknowledgements or rejections inside it."""
        self.settled.extend((tag, each, reason) for tag, each in held)

    def tell_settled(self) -> None:
        """Nothing more will come: tell the observer of the acknowledgements, those of one queue together."""
        removals: defaultdict[tuple[DurableQueue, Removal], list[int]] = defaultdict(list)
        for _, (queue, offset, _consumer), reason in self.settled:
            if reason is not None and isinstance(queue, DurableQueue) and not queue.deleted:
                removals[queue, reason].append(offset)
        for (queue, reason), offsets in removals.items():
            if entries := queue.entries(offsets):
                self._observer().dequeue(queue.number, entries, reason)

    def give_back(self) -> None:
        """It has been rolled back: what was settled inside it stands in its queues again, at its old offsets."""
        settled, self.settled = self.settled, []
        self._local.clear()
        offsets: defaultdict[Queue, list[int]] = defaultdict(list)
        for _, (queue, offset, consumer), _ in settled:
            offsets[queue].append(offset)
            if consumer is not None:
                consumer.restore()
        for queue, each in offsets.items():
            queue.give_back(each)

    def apply_local(self) -> None:
        """It has been committed: the same for this node's own queues, and for what goes back to its queue."""
        for route, message in self._local:
            for local in route.local:
                local.enqueue(message)
        for _, (queue, offset, consumer), reason in self.settled:
            if reason is None:
                queue.give_back((offset,))
            elif not isinstance(queue, DurableQueue):
                queue.settle((offset,), reason)
            if consumer is not None:
                consumer.restore()
