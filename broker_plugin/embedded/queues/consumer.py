"""Consumers: where each stands, how much more it may hold, and the channel that takes what they are handed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from broker_plugin.embedded.message_counters import MessageCounters
from broker_plugin.embedded.queues.message_headers import with_offset
from broker_plugin.embedded.queues.outlet import ChannelOutlet
from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.subscriber import UNLIMITED, Subscriber, Taken
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.queues.unacked import Unacked
from txobserver.events import Message, Removal


def unheard() -> None:
    """No client waits for the answer."""


FEW = 16
"""Consumers of one channel that are looked at whenever it can take more"""


class Receiver(ABC):
    """What a channel takes out of queues.

    ``prefetch`` is the limit over all its consumers, ``held`` what counts for it; ``unacked`` is in the client's hands,
    by delivery tag. ``counters``: the broker's.
    """

    def __init__(
        self, turn: Turn, owner: Owner, outlet: ChannelOutlet, flowing: bool, counters: MessageCounters
    ) -> None:
        self.owner = owner
        self.counters = counters
        self.outlet = outlet
        self.closed = False
        self.flowing = flowing
        self.consumers: dict[str, Consumer] = {}
        self.unacked: Unacked[Held] = Unacked()
        self.last_tag = 0
        self.prefetch = UNLIMITED
        self.held = 0
        self.consumer_prefetch = 0
        self._turn = turn
        self._gone: deque[str] = deque()
        self._waking = False

    def consumer_gone(self, consumer: Consumer) -> None:
        """Its queue was deleted. The client is told when the turn ends, or before it uses a tag again: what is told
        of a tag is taken for the consumer that has it (``consumer_tag_reused_behind_a_delete``).
        """
        if self.consumers.get(consumer.tag) is not consumer:
            return  # cancelled before its turn came
        del self.consumers[consumer.tag]
        self._gone.append(consumer.tag)
        self._turn.later(self.tell_cancelled)

    def tell_cancelled(self) -> None:
        """Tell the client of its consumers whose queues were deleted."""
        while self._gone and not self.closed:
            self.outlet.cancelled(self._gone.popleft())

    def qos(self, prefetch: int, whole_channel: bool) -> None:
        """basic.qos with RabbitMQ's meaning of ``global``: off, each consumer from now on; on, the whole channel.

        The former ends a limit of the whole channel (``a_limit_for_each_consumer_ends_that_of_the_channel``).
        """
        if not whole_channel:
            self.consumer_prefetch = prefetch
        self.prefetch = (prefetch if whole_channel else 0) or UNLIMITED
        self.wake_queues()

    def set_flowing(self, flowing: bool) -> None:
        """Whether the client takes what is sent to it."""
        self.flowing = flowing
        if flowing:
            self.wake_queues()

    def wake_queues(self) -> None:
        """The channel's consumers can take more. Where they are many, they are looked at once a turn."""
        if len(self.consumers) <= FEW:
            self._wake()
        elif not self._waking:
            self._waking = True
            self._turn.later(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for consumer in self.consumers.values():
            consumer.queue.may_take(consumer)

    @abstractmethod
    def close(self, done: Callable[[], None] = unheard) -> None:
        """The channel has ended: roll back, and give back what is outstanding. ``done``: all of it is back."""

    def abandon(self) -> None:
        """This node is no longer the primary: nothing may be told to any client any more."""
        self.closed = True


class Consumer(Subscriber):
    """``credit`` is how many more unacknowledged messages it may hold by its own prefetch limit."""

    __slots__ = ("arguments", "channel", "credit", "no_ack", "queue", "tag")

    def __init__(
        self, channel: Receiver, queue: Queue, tag: str, no_ack: bool, prefetch: int, arguments: Mapping[str, Any]
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.credit = prefetch or UNLIMITED
        self.arguments = dict(arguments)

    def capacity(self) -> int:
        """How many messages it could take right now. Prefetch limits only those that are acknowledged."""
        channel = self.channel
        if not channel.flowing:
            return 0
        if self.no_ack:
            return UNLIMITED
        room = channel.prefetch - channel.held  # below zero when the limit was lowered meanwhile
        return max(0, self.credit if self.credit < room else room)

    def deliver(self, taken: Taken) -> None:
        """Hand a message to the client; without acknowledgements it leaves the queue with that."""
        channel = self.channel
        counters = channel.counters
        channel.last_tag = tag = channel.last_tag + 1
        if taken[1]:
            counters.redelivered += 1
        if self.no_ack:
            counters.delivered_consume_auto += 1
            self.queue.settle((taken[0],), Removal.ACKED)
        else:
            counters.delivered_consume_manual += 1
            channel.unacked.add(tag, (self.queue, taken[0], self))
            self.credit -= 1
            channel.held += 1
        channel.outlet.deliver(self.tag, tag, taken[1], taken[2])

    def gone(self) -> None:
        """Its queue was deleted."""
        self.channel.consumer_gone(self)

    def restore(self) -> None:
        """One message that it held is settled or given back."""
        channel = self.channel
        if channel.held >= channel.prefetch:
            channel.wake_queues()
        else:
            self.queue.may_take(self)
        self.credit += 1
        channel.held -= 1


class PlacedConsumer(Consumer):
    """One that asked for offsets (``message_headers.OFFSET``): a kind of its own, so that no other pays for it."""

    def deliver(self, taken: Taken) -> None:
        """The same, with the message's offset among its headers."""
        offset, redelivered, message = taken
        properties = with_offset(message.properties, offset)
        super().deliver((offset, redelivered, Message(message.exchange, message.routing_key, properties, message.body)))


Held = tuple[Queue, int, Consumer | None]
"""A message in a client's hands: its queue, its offset there, and the consumer (None for basic.get)."""
