"""What a client has asked before its connection.close is carried out before that is answered, as RabbitMQ does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_plugin.amqp.protocol.channel import AmqpChannel


class LastRequests:
    """The channels of a connection that its client closes. Each one ends when nothing of what came on it waits.

    ``done`` is called once, when the last one has ended.
    """

    def __init__(self, done: Callable[[], None]) -> None:
        self.channels: dict[AmqpChannel, None] = {}
        self._done = done

    def begin(self, channels: Iterable[AmqpChannel]) -> None:
        """The client has closed the connection; these are its channels."""
        self.channels = dict.fromkeys(channels)
        if not self.channels:
            self._done()
        for channel in list(self.channels):
            channel.go_on()

    def carried_out(self, channel: AmqpChannel) -> None:
        """Nothing waits on this channel any more. The end of one channel may let others go on, and end, too."""
        if channel in self.channels:
            del self.channels[channel]
            last = not self.channels
            channel.close()
            if last:
                self._done()
