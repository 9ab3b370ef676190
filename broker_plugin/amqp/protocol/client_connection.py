"""A connection as its channels know it: what was agreed on, and the way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from broker_plugin.amqp.protocol.codec import OVERHEAD, Repeated, encode_origin
from broker_plugin.amqp.protocol.properties import PropertyCheck
from broker_plugin.amqp.protocol.settings import FRAME_MIN_SIZE, AmqpSettings
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.errors import AmqpError


class Wire(Protocol):
    """What carries the bytes."""

    def wake(self) -> None:
        """There is something to send, or the connection has ended."""
        ...

    def read_on(self) -> None:
        """The connection may have ceased to be congested."""
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

    ``published``: what publishes say, which repeat themselves; ``passed_properties``: those that are known to be sound.
    """

    def __init__(self, broker: EmbeddedBroker, settings: AmqpSettings, wire: Wire) -> None:
        self.broker = broker
        self.settings = settings
        self.frame_max = FRAME_MIN_SIZE
        self.max_payload = FRAME_MIN_SIZE - OVERHEAD
        self.waiting_bytes = 0
        self.writable = True
        self.published: dict[bytes, Repeated] = {}
        self.check_properties = PropertyCheck("")
        self.passed_properties = self.check_properties.passed
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
            if len(origins) >= 1024:
                origins.clear()
            origin = origins[exchange, routing_key] = encode_origin(exchange, routing_key)
        return origin

    def relieved(self) -> None:
        """What was in flight has landed, or what waited behind a request has been carried out."""
        self._wire.read_on()

    @abstractmethod
    def set_writable(self, writable: bool) -> None:
        """Whether the client takes what is sent to it; if not, it gets no deliveries, and is not read either."""

    @abstractmethod
    def fail(self, error: AmqpError, method: int) -> None:
        """Close the connection with this error; from now on only its close-ok counts."""
