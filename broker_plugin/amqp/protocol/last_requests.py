"""What a client has asked before its connection.close is carried out before that is answered, as RabbitMQ does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_plugin.amqp.protocol.channel import AmqpChannel


class LastRequests:
    """The channels, by number, of a connection that its client closes. Each ends when nothing of what came on it waits.

    ``done`` is called once, when the last one has ended.
    """

    def __init__(self, done: Callable[[], None]) -> None:
        self.channels: dict[int, AmqpChannel] = {}
        self._done = done

    def begin(self, channels: Iterable[AmqpChannel]) -> None:
        """The client has closed the connection; these are its channels."""
        self.channels = {channel.number: channel for channel in channels}
        if not self.channels:
            self._done()
        for channel in list(self.channels.values()):
            channel.go_on()

    def carried_out(self, number: int) -> None:
        """Nothing waits on this channel any more. The end of one channel may let others go on, and end, too."""
        channel = self.channels.pop(number, None)
        if channel is not None:
            last = not self.channels
            channel.end()
            if last:
                self._done()
