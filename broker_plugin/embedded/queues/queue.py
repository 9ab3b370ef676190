"""What durable and local queues have in common: who waits for messages, and the order in which they get them.

Messages are handed out in order of their offsets; one that comes back stands at its old offset again. Nothing is
handed out at once: a queue is woken, and works when the turn ends, so that whatever a turn brings is served together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.subscriber import UNLIMITED, Subscriber, Taken
from broker_plugin.embedded.queues.turn import Turn
from txobserver.events import Removal

Getter = Callable[["Taken | None"], None]
"""One waiting basic.get; None tells it that the queue is empty, or deleted."""


class Queue(ABC):
    """``owner`` is the connection that holds an exclusive queue."""

    number = 0
    durable = False

    def __init__(
        self, name: str, auto_delete: bool, arguments: Mapping[str, Any], turn: Turn, owner: Owner | None = None
    ) -> None:
        self.name = name
        self.auto_delete = auto_delete
        self.arguments = dict(arguments)
        self.owner = owner
        self.deleted = False
        self.exclusive_consumer = False
        self.consumers: deque[Subscriber] = deque()
        self._getters: deque[Getter] = deque()
        self._turn = turn
        self._woken = False
        self._held = 0

    # -- what kinds of queues differ in

    @property
    @abstractmethod
    def ready(self) -> int:
        """Messages that are in the queue and that neither a client nor a branch holds."""

    @abstractmethod
    def settle(self, offsets: Sequence[int], reason: Removal) -> None:
        """Messages that were handed out leave the queue for good."""

    @abstractmethod
    def give_back(self, offsets: Sequence[int]) -> None:
        """Messages that were handed out stand in the queue again, at their old offsets."""

    @abstractmethod
    def _take(self) -> Taken | None:
        """Hand out the first message, if there is one that may be handed out now."""

    @abstractmethod
    def _prepare(self) -> None:
        """The end of a turn's work: make sure that what is wanted next will be there."""

    # -- waiting for messages

    def wake(self) -> None:
        """Something has changed: work when the turn ends."""
        if not self._woken:
            self._woken = True
            self._turn.later(self.work)

    def get(self, getter: Getter) -> None:
        """One message, as soon as one may be handed out; those who came first are served first."""
        self._getters.append(getter)
        self.wake()

    def forget_getter(self, getter: Getter) -> None:
        """A waiting get whose channel has ended."""
        if getter in self._getters:
            self._getters.remove(getter)

    def add_consumer(self, consumer: Subscriber, exclusive: bool) -> None:
        """A consumer is served from the end of this turn on."""
        self.consumers.append(consumer)
        self.exclusive_consumer = exclusive
        self.wake()

    def remove_consumer(self, consumer: Subscriber) -> None:
        """A consumer gets nothing more."""
        self.consumers.remove(consumer)
        self.exclusive_consumer = False

    def hold(self) -> None:
        """Hand out nothing until ``release``: what stands in the queue is being purged or deleted."""
        self._held += 1

    def release(self) -> None:
        """The end of a ``hold``."""
        self._held -= 1
        self.wake()

    def drop(self) -> None:
        """The queue is gone. Getters are told; settling and giving back have no effect any more."""
        self.deleted = True
        self.consumers.clear()
        while self._getters:
            self._getters.popleft()(None)

    def wanted(self) -> int:
        """How many messages could be handed out right now, were they there."""
        total = len(self._getters)
        for consumer in self.consumers:
            total += consumer.capacity()
            if total >= UNLIMITED:
                return UNLIMITED
        return total

    def work(self) -> None:
        """Serve the consumers that wait."""
        self._woken = False
        if self._held or self.deleted:
            return
        if self._getters:
            self._serve_getters()
        if self.consumers and not self._getters:
            self._serve_consumers()
        self._prepare()

    def _serve_getters(self) -> None:
        while self._getters:
            taken = self._take()
            if taken is None and self.ready:
                return
            self._getters.popleft()(taken)

    def _serve_consumers(self) -> None:
        """Round robin: who got a message goes to the end of the line; who cannot take one is passed over."""
        consumers = self.consumers
        passed = 0
        while passed < len(consumers):
            consumer = consumers[0]
            if consumer.capacity() <= 0:
                passed += 1
            else:
                taken = self._take()
                if taken is None:
                    return
                passed = 0
                consumer.deliver(taken)
            consumers.rotate(-1)
