"""One client connection: it opens channels, and what is its own goes with it."""

from __future__ import annotations

from collections.abc import Callable

from broker_plugin.embedded.channels.channel import Channel
from broker_plugin.embedded.channels.client import Client
from broker_plugin.embedded.memory_budget import Holder
from broker_plugin.embedded.operations.operations import Operations
from broker_plugin.embedded.queues.consumer import Receiver
from broker_plugin.embedded.queues.outlet import ChannelOutlet, ConnectionOutlet
from broker_plugin.embedded.queues.turn import in_pieces
from broker_plugin.embedded.rights.rights import Rights
from broker_plugin.embedded.serving import Serving


class Session(Client):
    """``ended`` is told when it has been closed. ``rights``: of the user that the client has logged in as."""

    def __init__(
        self,
        broker: Serving,
        operations: Operations,
        outlet: ConnectionOutlet,
        ended: Callable[[Session], None],
        holder: Holder,
        rights: Rights,
    ) -> None:
        super().__init__(outlet, holder, rights)
        self._broker = broker
        self._operations = operations
        self._ended = ended
        self._abandoned = False

    def open_channel(self, outlet: ChannelOutlet) -> Channel:
        """A new channel. 530 if the user has as many as it may."""
        self.rights.check_channel()
        self.rights.counts.channels += 1
        channel = Channel(self._broker, self._operations.consumers, self, outlet)
        self._channels[channel] = None
        return channel

    @property
    def works(self) -> bool:
        """Whether it has work under way whose end must be read also during an alarm: a transaction, or a branch."""
        return self.holder.branches > 0 or any(
            isinstance(channel, Channel) and channel.mode.works for channel in self._channels
        )

    @property
    def user(self) -> str:
        """Whom the client has logged in as, "" in this process."""
        return self.rights.user

    @property
    def vhost(self) -> str:
        """The virtual host that it is connected to."""
        return self.rights.vhost

    def forget(self, channel: Receiver) -> None:
        if channel in self._channels:
            self.rights.counts.channels -= 1
        super().forget(channel)

    def close(self) -> None:
        """The connection has ended: its channels roll back, what it held is given back, its exclusive queues go.

        As many channels in a turn as it has room for; those that wait for theirs are handed nothing more.
        """
        self.set_flowing(False)
        in_pieces(self._broker.turn, self._channels, self._close_one, self._closed)

    def _close_one(self) -> None:
        channel = next(iter(self._channels))
        self.forget(channel)
        channel.close()

    def _closed(self) -> None:
        if not self._abandoned:
            self._operations.deletions.drop_exclusive(self)
            self._ended(self)

    def abandon(self) -> None:
        super().abandon()
        self._abandoned = True
