"""A client of one connection without io."""

from __future__ import annotations

from typing import Any

from pamqp import body, commands, frame, header
from pamqp.commands import Basic, Channel

from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.amqp.protocol.handshake import UNTOLD, History
from broker_plugin.amqp.protocol.settings import AmqpSettings
from tests.broker_plugin.amqp.raw_client import DEFAULT_PROPERTIES, show
from tests.broker_plugin.embedded.harness import Harness

HEADER = b"AMQP\x00\x00\x09\x01"


class Wire:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.wakes = 0
        self.resumed = 0
        self.parting = 0

    def wake(self) -> None:
        self.wakes += 1

    def read_on(self) -> None:
        self.resumed += 1

    def part_later(self) -> None:
        self.parting += 1


class Peer:
    """A client of one connection; ``frames`` are what it was sent since it last looked."""

    def __init__(self, harness: Harness | None = None, history: History = UNTOLD, **settings: Any) -> None:
        self.harness = harness or Harness()
        self.wire = Wire()
        self.connection = Connection(self.harness.broker, AmqpSettings(**settings), self.wire, history=history)

    def send(self, channel: int, *values: Any) -> None:
        self.connection.receive(b"".join(frame.marshal(value, channel) for value in values))

    def frames(self) -> list[str]:
        data, found = self.connection.take_output(), []
        while data:
            size, channel, value = frame.unmarshal(data)
            found.append(show((channel, value)))
            data = data[size:]
        return found

    def start_ok(self, password: str = "guest", properties: Any = DEFAULT_PROPERTIES, **more: Any) -> None:
        values = {"mechanism": "PLAIN", "response": f"\0guest\0{password}", "locale": "en_US", **more}
        self.connection.receive(HEADER)
        self.connection.take_output()
        self.send(0, commands.Connection.StartOk(properties, **values))

    def open(self, heartbeat: int = 0, frame_max: int = 4096) -> Peer:
        self.start_ok()
        self.send(0, commands.Connection.TuneOk(2047, frame_max, heartbeat), commands.Connection.Open("/"))
        self.send(1, Channel.Open())
        self.connection.take_output()
        return self

    def settle(self) -> None:
        self.harness.settle()


def publish(queue: str, data: bytes, frame_max: int = 4096, channel: int = 1) -> bytes:
    """A publish as bytes, its body cut as the frame size wants it."""
    frames = [Basic.Publish(0, "", queue), header.ContentHeader(0, len(data), Basic.Properties(delivery_mode=2))]
    step = frame_max - 8
    frames += [body.ContentBody(data[at : at + step]) for at in range(0, len(data), step)]
    return b"".join(frame.marshal(each, channel) for each in frames)
