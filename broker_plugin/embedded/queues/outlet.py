"""What the broker tells a client's channel and connection; the AMQP side makes frames of it."""

from __future__ import annotations

from typing import Protocol

from broker_plugin.embedded.errors import AmqpError, Forced
from txobserver.events import Message


class ChannelOutlet(Protocol):
    """One channel's way out."""

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        """basic.deliver."""
        ...

    def returned(self, code: int, text: str, message: Message) -> None:
        """basic.return."""
        ...

    def confirmed(self, delivery_tag: int, multiple: bool, accepted: bool) -> None:
        """basic.ack or basic.nack of publisher confirms."""
        ...

    def cancelled(self, consumer_tag: str) -> None:
        """basic.cancel from the broker: the queue is gone."""
        ...

    def failed(self, error: AmqpError) -> None:
        """What the client asked before cannot be done; the channel (or connection) ends with this error."""
        ...


class NoOutlet:
    """Of a channel that has ended: nothing is sent. Implements ``ChannelOutlet``."""

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        """Not sent."""

    def returned(self, code: int, text: str, message: Message) -> None:
        """Not sent."""

    def confirmed(self, delivery_tag: int, multiple: bool, accepted: bool) -> None:
        """Not sent."""

    def cancelled(self, consumer_tag: str) -> None:
        """Not sent."""

    def failed(self, error: AmqpError) -> None:
        """Not sent."""


NO_OUTLET = NoOutlet()


class ConnectionOutlet(Protocol):
    """One connection's way out."""

    def drain(self) -> None:
        """Begin nothing more of what the client asks, and deliver nothing; ``force_close`` follows."""
        ...

    @property
    def undecided(self) -> bool:
        """Whether the client waits for the outcome of something that has begun, or may have lost the answer to it."""
        ...

    def force_close(self, error: Forced) -> None:
        """End the connection with this error, at once."""
        ...

    def expel(self, error: AmqpError) -> None:
        """End the connection with this error, and give back what it holds: this node serves others."""
        ...

    def relieved(self) -> None:
        """What the client has sent and the ledger has not yet taken is little again: read on."""
        ...
