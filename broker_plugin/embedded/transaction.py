"""One AMQP transaction of a channel: publishes and acknowledgements that take effect together, or not at all.

What concerns replicated queues is told to the transaction's observer; publishes are told at once, so that the backups
have them when the commit comes. What concerns this node's own queues waits here until the commit is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from broker_plugin.embedded.consumer import Consumer
from broker_plugin.embedded.durable_queue import DurableQueue
from broker_plugin.embedded.queue import Queue
from broker_plugin.embedded.topology import Route
from txobserver.events import Message, Removal
from txobserver.ledger import Done, Observer

Held = tuple[Queue, int, Consumer | None]
"""A message in a client's hands: its queue, its place there, and the consumer (None for basic.get)."""


class Transaction:
    """``returns`` are mandatory messages that no queue took, for the client when the commit is done."""

    def __init__(self, begin: Callable[[], Observer]) -> None:
        self._begin = begin
        self._observer: Observer | None = None
        self._local: list[tuple[Route, Message]] = []
        self.returns: list[Message] = []
        self.settled: list[tuple[int, Held, Removal | None]] = []
        """(delivery tag, message, reason); no reason: it is given back to its queue"""

    def publish(self, route: Route, message: Message, mandatory: bool) -> None:
        """A publish inside the transaction."""
        if route.durable:
            observer = self._observer
            if observer is None:
                observer = self._observer = self._begin()
            observer.enqueue(route.durable, message)
        if route.local:
            self._local.append((route, message))
        elif mandatory and not route.durable:
            self.returns.append(message)

    def settle(self, held: Iterable[tuple[int, Held]], reason: Removal | None) -> None:
        """Acknowledgements or rejections inside the transaction."""
        self.settled.extend((tag, each, reason) for tag, each in held)

    def commit(self, done: Done) -> None:
        """Tell the observer of the acknowledgements and let it commit; without one there is nothing to wait for."""
        removals: defaultdict[tuple[DurableQueue, Removal], list[int]] = defaultdict(list)
        for _, (queue, place, _consumer), reason in self.settled:
            if reason is not None and isinstance(queue, DurableQueue) and not queue.deleted:
                removals[queue, reason].append(place)
        for (queue, reason), places in removals.items():
            if entries := queue.entries(places):
                if self._observer is None:
                    self._observer = self._begin()
                self._observer.dequeue(queue.number, entries, reason)
        if self._observer is None:
            done(None)
        else:
            self._observer.commit(done)

    def apply_local(self) -> None:
        """The commit is done: the same for this node's own queues, and for what goes back to its queue."""
        for route, message in self._local:
            for local in route.local:
                local.enqueue(message)
        for _, (queue, place, consumer), reason in self.settled:
            if reason is None:
                queue.give_back((place,))
            elif not isinstance(queue, DurableQueue):
                queue.settle((place,), reason)
            if consumer is not None:
                consumer.restore()

    def rollback(self) -> None:
        """Forget the publishes; the caller takes the acknowledgements back."""
        if self._observer is not None:
            self._observer.rollback()
