"""Whether a client is read. What it has sent and the broker has not carried out is bounded by that."""

from __future__ import annotations

from broker_plugin.amqp.protocol.client_connection import ClientConnection
from broker_plugin.amqp.protocol.open_channels import OpenChannels


class Intake:
    """Of one connection. ``blocked``: why publishers are not read (None: they are).

    One that has a transaction or a branch under way is read until that has ended: what it holds is free only then.
    """

    def __init__(self, connection: ClientConnection, channels: OpenChannels) -> None:
        self.blocked: str | None = None
        self._connection = connection
        self._channels = channels

    @property
    def congested(self) -> bool:
        """Whether nothing more should be read from the client for now."""
        connection = self._connection
        if connection.held_back or connection.draining or self.overfull:
            return True
        return self._channels.session is not None and not connection.writable

    @property
    def overfull(self) -> bool:
        """Whether too much of what the client has sent waits here. If not, it may be read though it takes nothing."""
        session, connection = self._channels.session, self._connection
        settings = connection.settings
        if session is None:
            return False
        if session.in_flight > settings.in_flight_bytes:
            session.relief_at = settings.in_flight_bytes // 2
            return True
        if self.blocked is not None and connection.publishes and not session.works:
            return True
        return connection.waiting_bytes > settings.waiting_bytes
