"""A channel as the handlers of its methods know it: whom it asks, and how it is answered."""

from __future__ import annotations

from abc import ABC, abstractmethod

from broker_plugin.amqp.protocol.client_connection import ClientConnection, Siblings
from broker_plugin.amqp.protocol.codec import deliver_prefix
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.channels.channel import Channel


class Answering(ABC):
    """``busy``: a request waits for its answer, and later frames wait for that. ``inner`` is the broker's channel.

    ``last_queue`` was declared last; ``listing``: what is left of the list of branches that the client is reading page
    by page, the next one last. ``unheard``: an outcome was told, and nothing has come on the channel since;
    ``pipelines``: something has come on it while an outcome was on its way (``last_word``).
    """

    inner: Channel

    def __init__(self, connection: ClientConnection, siblings: Siblings, number: int) -> None:
        self.number = number
        self.connection = connection
        self.siblings = siblings
        self.broker: EmbeddedBroker = connection.broker
        self.busy = False
        self.last_queue = ""
        self.listing: list[bytes] = []
        self.unheard = self.pipelines = False
        self._handling = False
        self._prefixes: dict[str, bytes] = {}

    def wait(self) -> None:
        """A request begins that ``answer`` ends."""
        self.busy = True

    def answer(self, frame: bytes | None) -> None:
        """The answer to the request that is waited for (None: it asked for no answer); go on with what waits."""
        self.busy = False
        if frame is not None:
            self.telling()
            self.send(frame)
        if not self._handling:
            self.go_on()

    @abstractmethod
    def telling(self) -> None:
        """An answer is about to be sent."""

    def send(self, frame: bytes) -> None:
        """A frame to the client."""
        self.connection.send(frame)

    def expect_deliveries(self, consumer_tag: str) -> None:
        """A consumer begins."""
        self._prefixes[consumer_tag] = deliver_prefix(consumer_tag)

    def expect_no_deliveries(self, consumer_tag: str) -> None:
        """A consumer has ended."""
        self._prefixes.pop(consumer_tag, None)

    @abstractmethod
    def close(self) -> None:
        """The client closes the channel, which is answered when what it held is back in its queues."""

    def end(self) -> None:
        """The client has closed the connection, and this channel has carried out what came before that."""
        self.inner.close()
        self.leave()

    @abstractmethod
    def go_on(self) -> None:
        """Carry out what waits, as long as the client takes the answers."""

    @abstractmethod
    def leave(self) -> None:
        """The connection closes, or this channel: what has come and was not carried out is forgotten."""
