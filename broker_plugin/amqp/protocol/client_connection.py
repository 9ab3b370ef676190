"""A connection as its channels know it: what was agreed on, and the way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from broker_plugin.amqp.protocol.codec import OVERHEAD, PublishArguments, Repeated, encode_origin
from broker_plugin.amqp.protocol.properties import PropertyCheck
from broker_plugin.amqp.protocol.settings import FRAME_MIN_SIZE, AmqpSettings
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.memory_budget import Holder

CACHE_BYTES: Final = 1 << 20
"""That are remembered of one connection, about; then all of it is forgotten, and it begins anew."""
CACHED_BYTES: Final = 300
"""That a publish, or an origin, is counted for beside its texts where it is remembered."""
LONGEST_PUBLISH: Final = 519
"""Bytes of a basic.publish with the longest names that there can be. What is longer ends with bytes of no meaning."""


class Wire(Protocol):
    """What carries the bytes."""

    def wake(self) -> None:
        """There is something to send, or the connection has ended."""
        ...

    def read_on(self) -> None:
        """The connection may have ceased to be congested."""
        ...

    def part_later(self) -> None:
        """Call ``part`` of the connection after ``parting.HEARD_SECONDS``."""
        ...


class Siblings(ABC):
    """The channels of a connection as one of them knows them."""

    @abstractmethod
    def forget(self, number: int) -> None:
        """This channel is closed on both sides; its number may be used again."""

    @abstractmethod
    def carried_out(self, number: int) -> None:
        """Nothing waits on this channel any more."""


class ClientConnection(ABC):
    """``writable``: the client takes what is sent to it. ``waiting_bytes`` of its frames wait behind requests.
    ``held_back``: its login is refused, it has not been told yet, and nothing of it is read. ``draining``: nothing more
    that it asks is begun, until it is closed.

    ``published``: what publishes say, which repeat themselves; ``passed_properties``: those that are known to be sound.
    ``holder``: what it makes the node hold (``weigh``): ``content_bytes`` of bodies that are not complete,
    ``cached_bytes`` of what is remembered, ``unsent_bytes`` that were given to the system, which the client does not
    read. ``publishes``: it has published since the last alarm began.
    """

    def __init__(self, broker: EmbeddedBroker, settings: AmqpSettings, wire: Wire) -> None:
        self.broker = broker
        self.settings = settings
        self.frame_max = FRAME_MIN_SIZE
        self.max_payload = FRAME_MIN_SIZE - OVERHEAD
        self.waiting_bytes = 0
        self.writable = True
        self.held_back = False
        self.draining = False
        self.published: dict[bytes, Repeated] = {}
        self.check_properties = PropertyCheck("", broker.unsupported)
        self.passed_properties = self.check_properties.passed
        self.holder = Holder(broker.memory)
        self.content_bytes = 0
        self.cached_bytes = 0
        self.unsent_bytes = 0
        self.publishes = False
        self._wire = wire
        self._capabilities: Mapping[str, Any] = {}
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._origins: dict[tuple[str, str], bytes] = {}

    def client_can(self, capability: str) -> bool:
        """Whether the client said so."""
        return self._capabilities.get(capability) is True

    def send(self, data: bytes) -> None:
        """Bytes for the client, to be written when the turn ends."""
        output = self._output
        output.append(data)
        self._output_bytes += len(data)
        if len(output) == 1:
            self._wire.wake()
        if self._output_bytes > self.settings.output_bytes and self.writable:
            self.set_writable(False)

    def origin(self, exchange: str, routing_key: str) -> bytes:
        """Exchange and routing key as they stand in deliveries."""
        origins = self._origins
        origin = origins.get((exchange, routing_key))
        if origin is None:
            if len(origins) >= 1024 or self.cached_bytes > CACHE_BYTES:
                self.forget_cache()
            origin = origins[exchange, routing_key] = encode_origin(exchange, routing_key)
            self.cached_bytes += 2 * len(origin) + CACHED_BYTES
        return origin

    def known_publish(self, payload: bytes, arguments: PublishArguments) -> Repeated:
        """A publish that has not been remembered is, unless it is longer than any that can be meant."""
        repeated = Repeated(arguments)
        if len(payload) <= LONGEST_PUBLISH:
            if len(self.published) >= 1024 or self.cached_bytes > CACHE_BYTES:
                self.forget_cache()
            self.published[payload] = repeated
            repeated.kept = True
            self.cached_bytes += 2 * len(payload) + CACHED_BYTES
        return repeated

    def repeat(self, repeated: Repeated, channel: int, head: bytes, properties: bytes, size: int) -> None:
        """What came behind a publish, so that the next one like it is known as a whole, if it is remembered."""
        if not repeated.kept:
            return
        self.cached_bytes += len(head) + len(properties) - len(repeated.head) - len(repeated.properties)
        repeated.head, repeated.properties, repeated.size, repeated.channel = head, properties, size, channel

    def forget_cache(self) -> None:
        """Remember nothing of what it has published and been sent; it all comes again when it is needed."""
        for repeated in self.published.values():
            repeated.kept = False
        self.published.clear()
        self._origins.clear()
        self.check_properties.forget()
        self.cached_bytes = 0

    def relieved(self) -> None:
        """What was in flight has landed, or what waited behind a request has been carried out."""
        self._wire.read_on()

    @abstractmethod
    def set_writable(self, writable: bool) -> None:
        """Whether the client takes what is sent to it; if not, it gets no deliveries, and is not read either."""

    @abstractmethod
    def read_again(self, number: int, frames: Sequence[tuple[int, bytes]]) -> None:
        """These frames came behind what closed this channel: they are of the next one of its number."""

    @abstractmethod
    def fail(self, error: AmqpError, method: int) -> None:
        """Close the connection with this error; from now on only its close-ok counts."""
