"""One client connection as the broker knows it: its channels, its exclusive queues, what of it is on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugin.embedded.channels.channel import Channel
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.outlet import ChannelOutlet, ConnectionOutlet

if TYPE_CHECKING:
    from broker_plugin.embedded.broker import Broker


class Session:
    """``in_flight`` counts the bytes of publishes outside transactions whose outcome is not yet known."""

    def __init__(self, broker: Broker, outlet: ConnectionOutlet) -> None:
        self.outlet = outlet
        self.exclusive: dict[str, LocalQueue] = {}
        self.in_flight = 0
        self.flowing = True
        self.relief_at: int | None = None
        self.broker = broker
        self._channels: dict[Channel, None] = {}

    def open_channel(self, outlet: ChannelOutlet) -> Channel:
        """A new channel."""
        channel = Channel(self.broker, self, outlet)
        self._channels[channel] = None
        return channel

    def forget(self, channel: Channel) -> None:
        """The channel is closed."""
        self._channels.pop(channel, None)

    def set_flowing(self, flowing: bool) -> None:
        """Whether the client takes what is sent to it; if not, its consumers are passed over."""
        self.flowing = flowing
        for channel in self._channels:
            channel.set_flowing(flowing)

    def landed(self, size: int) -> None:
        """The outcome of a publish of ``size`` bytes is known."""
        self.in_flight -= size
        if self.relief_at is not None and self.in_flight <= self.relief_at:
            self.relief_at = None
            self.outlet.relieved()

    def close(self) -> None:
        """The connection has ended: its channels roll back, what it held is given back, its exclusive queues go."""
        for channel in list(self._channels):
            channel.close()
        for queue in list(self.exclusive.values()):
            self.broker.drop_local_queue(queue)
        self.broker.disconnect(self)

    def abandon(self) -> None:
        """This node is no longer the primary: nothing is given back and nothing told."""
        for channel in self._channels:
            channel.abandon()
