"""What durable and local queues have in common: who waits for messages, and the order in which they get them.

Messages are handed out in order of their offsets; one that comes back stands at its old offset again. Nothing is
handed out at once: a queue is woken, and works when the turn ends, so that whatever a turn brings is served together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.subscriber import Subscriber, Taken
from broker_plugin.embedded.queues.turn import Turn
from txobserver.events import Removal

Getter = Callable[["Taken | None"], None]
"""One waiting basic.get; None tells it that the queue is empty, or deleted."""


class Queue(ABC):
    """``owner`` is the connection that holds an exclusive queue. ``touched``: it was declared, was asked for a
    message or has lost a consumer since it was last looked at whether it expires.

    Of the consumers those stand in a line that may be able to take a message, in the order in which they are served.
    One that turns out to be full leaves it until ``may_take``, so that no message costs in proportion to their number.

    Many methods: those in which kinds of queues differ, and those by which messages and their takers come and go.
    """

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
        self.touched = True
        self.consumers: dict[Subscriber, None] = {}
        self._line: OrderedDict[Subscriber, None] = OrderedDict()
        self._getters: deque[Getter] = deque()
        self._turn = turn
        self._woken = False
        self._held = 0
        self._returns = 0
        self._unseen = 0
        self._when_whole: list[Callable[[], None]] = []

    # -- what kinds of queues differ in

    @property
    @abstractmethod
    def ready(self) -> int:
        """Messages that are in the queue and that neither a client nor a branch holds."""

    @property
    @abstractmethod
    def out(self) -> int:
        """Messages that a client or a branch holds."""

    @abstractmethod
    def settle(self, offsets: Sequence[int], reason: Removal) -> None:
        """Messages that were handed out leave the queue for good."""

    @abstractmethod
    def _return(self, offsets: Sequence[int]) -> int:
        """Messages that were handed out stand in the queue again, at their old offsets; returns how many."""

    @abstractmethod
    def _take(self) -> Taken | None:
        """Hand out the first message, if there is one that may be handed out now."""

    @abstractmethod
    def _prepare(self) -> None:
        """The end of a turn's work: make sure that what is wanted next will be there."""

    @property
    def in_use(self) -> bool:
        """Whether consumers are there, or clients or branches hold messages of it."""
        return bool(self.consumers or self._getters or self.out or self._returns)

    # -- given back, and filled, piece by piece

    def give_back(self, offsets: Sequence[int]) -> None:
        """Messages that were handed out stand in the queue again, at their old offsets."""
        self._return(offsets)
        self.wake()

    def begin_return(self) -> None:
        """Messages will be given back, or come in, piece by piece, and count when all have. Nothing is handed out until
        then."""
        self._returns += 1
        self.hold()

    def give_back_unseen(self, offsets: Sequence[int]) -> int:
        """A piece of that; returns how many of these are still in the queue."""
        count = self._return(offsets)
        self._unseen += count
        return count

    def came_unseen(self) -> None:
        """A message that has just come in belongs to such pieces."""
        self._unseen += 1

    def end_return(self, count: int) -> None:
        """All ``count`` of them are back."""
        self._returns -= 1
        if not self.deleted:
            self._unseen -= count
        if not self._returns:
            self._go_on_whole()
        self.release()

    @property
    def returning(self) -> bool:
        """Whether messages are on their way back, or in, that do not count yet."""
        return self._returns > 0

    def when_whole(self, operation: Callable[[], None]) -> None:
        """Do this when no message is on its way any more, or the queue is gone. It must not raise."""
        self._when_whole.append(operation)

    def _go_on_whole(self) -> None:
        waiting, self._when_whole = self._when_whole, []
        for operation in waiting:
            operation()

    # -- waiting for messages

    def wake(self) -> None:
        """Something has changed: work when the turn ends."""
        if not self._woken:
            self._woken = True
            self._turn.later(self.work)

    def get(self, getter: Getter) -> None:
        """One message, as soon as one may be handed out; those who came first are served first."""
        self._getters.append(getter)
        self.touched = True
        self.wake()

    def forget_getter(self, getter: Getter) -> None:
        """A waiting get whose channel has ended."""
        if getter in self._getters:
            self._getters.remove(getter)

    def add_consumer(self, consumer: Subscriber, exclusive: bool) -> None:
        """A consumer is served from the end of this turn on."""
        self.consumers[consumer] = self._line[consumer] = None
        self.exclusive_consumer = exclusive
        self.wake()

    def may_take(self, consumer: Subscriber) -> None:
        """One of the consumers can take more than before: it stands in the line, if it did not."""
        if consumer in self.consumers:
            self._line[consumer] = None
        self.wake()

    def remove_consumer(self, consumer: Subscriber) -> None:
        """A consumer gets nothing more."""
        self.consumers.pop(consumer, None)  # of a queue that is gone it may not be there any more
        self._line.pop(consumer, None)
        self.exclusive_consumer = False
        self.touched = True

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
        self._unseen = 0
        self.consumers.clear()
        self._line.clear()
        self._go_on_whole()
        while self._getters:
            self._getters.popleft()(None)

    def wanted(self, most: int) -> int:
        """How many messages could be handed out right now, were they there; ``most`` where that is more."""
        total = len(self._getters)
        full: list[Subscriber] = []
        for consumer in self._line:
            if total >= most:
                break
            room = consumer.capacity()
            if room > 0:
                total += room
            else:
                full.append(consumer)
        for consumer in full:
            del self._line[consumer]
        return min(total, most)

    def work(self) -> None:
        """Serve the consumers that wait."""
        self._woken = False
        if self._held or self.deleted:
            return
        if self._getters:
            self._serve_getters()
        if self._line and not self._getters:
            self._serve_consumers()
        self._prepare()

    def _serve_getters(self) -> None:
        while self._getters:
            taken = self._take()
            if taken is None and self.ready:
                return
            self._getters.popleft()(taken)

    def _serve_consumers(self) -> None:
        """Round robin: who got a message goes to the end of the line; who cannot take one leaves it."""
        line, turn = self._line, self._turn
        left = turn.left
        handed = left
        while line:
            consumer = next(iter(line))
            if consumer.capacity() <= 0:
                del line[consumer]
                continue
            taken = self._take()
            if taken is None:
                break
            left -= 1
            line.move_to_end(consumer)
            consumer.deliver(taken)
            if not left:
                self.wake()
                break
        turn.spent += handed - left
