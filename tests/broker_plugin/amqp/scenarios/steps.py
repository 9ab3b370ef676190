"""Steps of a scenario, and short names for what clients often send."""

from __future__ import annotations

from typing import Any, NamedTuple

from pamqp import body, commands, header
from pamqp.commands import Basic, Queue


class Step(NamedTuple):
    """Frames that one connection sends on one channel."""

    connection: str
    channel: int
    frames: tuple[Any, ...]


def on(channel: int, *frames: Any, connection: str = "a") -> Step:
    """A step of connection a."""
    return Step(connection, channel, frames)


def other(channel: int, *frames: Any) -> Step:
    """A step of connection b."""
    return Step("b", channel, frames)


def publish(exchange: str, key: str, data: bytes, mandatory: bool = False, **properties: Any) -> tuple[Any, ...]:
    """A publish with its content."""
    head = header.ContentHeader(0, len(data), commands.Basic.Properties(**properties))
    method = Basic.Publish(0, exchange, key, mandatory)
    return (method, head, body.ContentBody(data)) if data else (method, head)


def queue(name: str, durable: bool = True, **more: Any) -> Queue.Declare:
    return Queue.Declare(queue=name, durable=durable, **more)


def passive(name: str) -> Queue.Declare:
    return Queue.Declare(queue=name, passive=True)


def arguments(**values: Any) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in values.items()}


def get(name: str, no_ack: bool = False) -> Basic.Get:
    return Basic.Get(queue=name, no_ack=no_ack)


def consume(name: str, tag: str, **more: Any) -> Basic.Consume:
    return Basic.Consume(queue=name, consumer_tag=tag, **more)


def filled(name: str, count: int, durable: bool = True) -> list[Step]:
    """A queue with messages m1, m2, ..."""
    steps = [on(1, queue(name, durable))]
    return steps + [on(1, *publish("", name, b"m%d" % number)) for number in range(1, count + 1)]
