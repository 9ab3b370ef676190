"""One client connection as its channels know it: what of it is on its way, and whether it reads."""

from __future__ import annotations

from broker_plugin.embedded.memory_budget import Holder
from broker_plugin.embedded.queues.consumer import Receiver
from broker_plugin.embedded.queues.outlet import ConnectionOutlet
from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.rights.rights import Rights


class Client(Owner):
    """``in_flight`` counts the bytes of publishes outside transactions whose outcome is not yet known.

    ``alarm``: the number of the alarm that is on, 0 for none; while one is, nothing new is taken from publishers.
    """

    def __init__(self, outlet: ConnectionOutlet, holder: Holder, rights: Rights | None = None) -> None:
        super().__init__(holder, rights)
        self.alarm = 0
        self.outlet = outlet
        self.in_flight = 0
        self.flowing = True
        self.relief_at: int | None = None
        self._channels: dict[Receiver, None] = {}

    def forget(self, channel: Receiver) -> None:
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

    def abandon(self) -> None:
        """This node is no longer the primary: nothing is given back and nothing told."""
        for channel in self._channels:
            channel.abandon()
        self.holder.detach()
