"""A consumer: where it stands, and how much more it may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker_plugin.embedded.queues.message_headers import with_place
from broker_plugin.embedded.queues.queue import UNLIMITED, Queue, Taken
from txobserver.events import Message, Removal

if TYPE_CHECKING:
    from broker_plugin.embedded.channels.channel import Channel


class Consumer:
    """``credit`` is how many more unacknowledged messages it may hold by its own prefetch limit."""

    __slots__ = ("arguments", "channel", "credit", "no_ack", "queue", "tag")

    def __init__(
        self, channel: Channel, queue: Queue, tag: str, no_ack: bool, prefetch: int, arguments: Mapping[str, Any]
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
        channel.last_tag = tag = channel.last_tag + 1
        if self.no_ack:
            self.queue.settle((taken[0],), Removal.ACKED)
        else:
            channel.unacked[tag] = (self.queue, taken[0], self)
            self.credit -= 1
            channel.held += 1
        channel.outlet.deliver(self.tag, tag, taken[1], taken[2])

    def restore(self) -> None:
        """One message that it held is settled or given back."""
        channel = self.channel
        if channel.held >= channel.prefetch:
            channel.wake_queues()
        else:
            self.queue.wake()
        self.credit += 1
        channel.held -= 1


class PlacedConsumer(Consumer):
    """One that asked for places (``message_headers.PLACE``): a kind of its own, so that no other pays for it."""

    def deliver(self, taken: Taken) -> None:
        """The same, with the message's place among its headers."""
        place, redelivered, message = taken
        properties = with_place(message.properties, place)
        super().deliver((place, redelivered, Message(message.exchange, message.routing_key, properties, message.body)))
