"""The channels of one connection, from the opening of each to its end."""

from __future__ import annotations

from collections.abc import Callable

from broker_plugin.amqp.protocol.channel import MAKING_STEPS, AmqpChannel
from broker_plugin.amqp.protocol.client_connection import ClientConnection, Siblings
from broker_plugin.amqp.protocol.codec import METHOD, encode_open_ok
from broker_plugin.amqp.protocol.last_requests import LastRequests
from broker_plugin.amqp.protocol.last_word import channels_in
from broker_plugin.embedded.channels.session import Session
from broker_plugin.embedded.errors import AmqpError

CHANNEL_OPEN = b"\x00\x14\x00\x0a"
CHANNEL_CLOSE_OK = b"\x00\x14\x00\x29"


class OpenChannels(Siblings):
    """``by_number``: the channels that the client uses; ``last_requests``: what is left of them when it has closed.

    ``session`` is there while the connection is open: channels are opened in it. ``limit``: how many may be open.
    ``done`` is called when a connection that its client has closed has carried out the client's last requests.
    """

    def __init__(self, connection: ClientConnection, limit: int, done: Callable[[], None]) -> None:
        self.by_number: dict[int, AmqpChannel] = {}
        self.last_requests = LastRequests(done)
        self.session: Session | None = None
        self.limit = limit
        self._connection = connection

    def frame(self, kind: int, number: int, payload: bytes) -> None:
        """A frame for a channel that is not open: it opens the channel, or ends its closing. Else 504; 530."""
        if kind != METHOD or not payload.startswith(CHANNEL_OPEN):
            if payload.startswith(CHANNEL_CLOSE_OK):
                return
            raise AmqpError(504, "expected 'channel.open'")
        opened, limit = len(self.by_number), self.limit
        if opened >= limit:
            raise AmqpError(
                530, f"number of channels opened ({opened}) has reached the negotiated channel_max ({limit})"
            )
        assert self.session is not None
        self._connection.broker.turn.spent += MAKING_STEPS
        self.by_number[number] = AmqpChannel(self._connection, self, self.session, number)
        self._connection.send(encode_open_ok(number))

    def forget(self, number: int) -> None:
        self.by_number.pop(number, None)

    def carried_out(self, number: int) -> None:
        self.last_requests.carried_out(number)

    def set_flowing(self, flowing: bool) -> None:
        """Whether the client takes what is sent to it; if it does again, what waits on its channels is carried out."""
        if self.session is not None:
            self.session.set_flowing(flowing)
        if flowing:
            for channel in self._all():
                channel.go_on()

    def close(self) -> None:
        """The client closes the connection: each channel ends when it has carried out what came before that."""
        channels = list(self.by_number.values())
        self._connection.broker.turn.looked_at(len(channels))
        self.by_number.clear()
        self.last_requests.begin(channels)

    def unheard(self, partial: bytes) -> set[int]:
        """The channels on which an outcome was told that the client has not shown to have heard: nothing has come on
        them since, also not in ``partial``, which has come and was not carried out. Below zero: of which nothing that
        comes would show it."""
        came = channels_in(partial)
        answered = {each.number for each in self._all() if each.unheard and not each.held} - came
        return answered | {-each.number for each in self._all() if each.pipelines}

    @property
    def undecided(self) -> bool:
        """Whether something that has begun on one of them has no answer."""
        return any(channel.undecided for channel in self._all())

    def leave(self) -> None:
        """The connection is over: what waits is not carried out, and what is outstanding goes back to its queues."""
        session, self.session = self.session, None
        channels = self._all()
        self._connection.broker.turn.looked_at(len(channels))
        self._clear()
        for channel in channels:
            channel.leave()
        if session is not None:
            session.close()

    def abandon(self) -> None:
        """This node does not serve clients any more: nothing is given back, and nothing carried out."""
        self.session = None
        self._clear()

    def _all(self) -> list[AmqpChannel]:
        return [*self.by_number.values(), *self.last_requests.channels.values()]

    def _clear(self) -> None:
        self.by_number.clear()
        self.last_requests.channels.clear()
