"""What clients must not do: each draws operations of which at least one is refused."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from python_tests.suites.amqp_programs import wire
from python_tests.suites.amqp_programs.program import Op
from python_tests.suites.amqp_programs.values import EXCHANGES, REFUSED_ARGUMENTS

Draw = Callable[[Random, int], list[Op]]


def _publish(channel: int, **more: Any) -> Op:
    return Op(channel, "basic.publish", {"exchange": "", "key": "q1", "body": "never", **more})


def _one(name: str, **arguments: Any) -> Draw:
    return lambda lot, channel: [Op(channel, name, arguments)]


def _method(name: str, payload: bytes) -> Draw:
    return lambda lot, channel: [Op(channel, "frame", {"kind": wire.METHOD, "hex": payload.hex()})]


def _cut(frames: int) -> Draw:
    """A publish without all of its content, and something behind it."""
    return lambda lot, channel: [
        _publish(channel, cut=frames, size=100, frames=2),
        lot.choice((Op(channel, "basic.qos", {}), _publish(channel), Op(channel, "channel.close", {"code": 200}))),
    ]


def _bare(kind: int, payload: bytes) -> Draw:
    return lambda lot, channel: [Op(channel, "frame", {"kind": kind, "hex": payload.hex()})]


def _wrong_end(lot: Random, channel: int) -> list[Op]:
    frame = wire.frame(wire.METHOD, channel, wire.method("basic.qos", {}))
    return [Op(channel, "octets", {"hex": (frame[:-1] + b"\x00").hex()})]


def _again_open(lot: Random, channel: int) -> list[Op]:
    return [Op(channel, "basic.qos", {}), Op(channel, "channel.open", {})]


def _unopened(lot: Random, channel: int) -> list[Op]:
    return [Op(77, "basic.qos", {"unopened": True})]


def _channel_zero(lot: Random, channel: int) -> list[Op]:
    return [Op(0, lot.choice(("channel.open", "basic.qos", "tx.select")), {})]


def _same_tag(lot: Random, channel: int) -> list[Op]:
    consume = Op(channel, "basic.consume", {"queue": "q7", "tag": "same"})
    return [Op(channel, "queue.declare", {"queue": "q7"}), consume, consume]


def _modes(lot: Random, channel: int) -> list[Op]:
    names = ["tx.select", "confirm.select"]
    lot.shuffle(names)
    return [Op(channel, name, {}) for name in names]


def _refused_arguments(lot: Random, channel: int) -> list[Op]:
    return [Op(channel, "queue.declare", {"queue": "q9", "arguments": lot.choice(REFUSED_ARGUMENTS)})]


def _bad_properties(lot: Random, channel: int) -> list[Op]:
    drawn = lot.choice(({"user_id": "nobody"}, {"expiration": "soon"}, {"expiration": "-1"}, {"expiration": "5x"}))
    return [_publish(channel, properties=drawn)]


def _wrong_delivery(lot: Random, channel: int) -> list[Op]:
    name = lot.choice(("basic.ack", "basic.nack", "basic.reject"))
    more = {"multiple": True} if name != "basic.reject" and lot.random() < 0.5 else {}
    return [Op(channel, name, {"delivery": lot.choice((99, 1 << 63, 0 if not more else 98)), **more})]


def _text(name: str, field: str, **more: Any) -> Draw:
    return _one(name, **{field: "\xff\xfe", **more})


KINDS: tuple[Draw, ...] = (
    _cut(1),
    _cut(2),
    _cut(3),
    _bare(wire.HEADER, wire.content_header(1, {})),
    _bare(wire.BODY, b"x"),
    _bare(wire.HEARTBEAT, b""),
    _bare(9, b"x"),
    _bare(wire.METHOD, wire.method("queue.declare", {"queue": "q1"})[:-3]),
    _bare(wire.METHOD, wire.method("queue.declare-ok", {"queue": "q1"})),
    _wrong_end,
    _again_open,
    _unopened,
    _channel_zero,
    _same_tag,
    _modes,
    _refused_arguments,
    _bad_properties,
    _wrong_delivery,
    _wrong_delivery,
    _one("channel.flow"),
    _one("basic.qos", size=5, count=1),
    _one("basic.recover"),
    _one("basic.recover-async"),
    _one("tx.commit"),
    _one("tx.rollback"),
    _one("exchange.declare", exchange="e9", type="carousel"),
    _one("exchange.declare", exchange="amq.mine", type="direct"),
    _one("exchange.declare", exchange="amq.direct", type="fanout", durable=True),
    _one("exchange.declare", exchange="", type="direct"),
    _one("exchange.delete", exchange="amq.direct"),
    _one("exchange.delete", exchange=""),
    _one("queue.declare", queue="amq.mine"),
    _one("queue.declare", queue="nosuch", passive=True),
    _one("exchange.declare", exchange="nosuch", type="direct", passive=True),
    _one("queue.bind", queue="q1", exchange="", key="k"),
    _one("queue.bind", queue="q1", exchange="nosuch", key="k"),
    _one("queue.bind", queue="nosuch", exchange="amq.direct", key="k"),
    _one("queue.unbind", queue="nosuch", exchange="amq.direct", key="k"),
    _one("queue.unbind", queue="q1", exchange="nosuch", key="k"),
    _one("exchange.bind", destination="nosuch", source="amq.direct", key="k"),
    _one("exchange.unbind", destination="nosuch", source="amq.direct", key="k"),
    _one("queue.purge", queue="nosuch"),
    _one("queue.delete", queue="nosuch"),
    _one("basic.get", queue="nosuch"),
    _one("basic.consume", queue="nosuch", tag="t"),
    _one("queue.bind", queue="q1", exchange="amq.headers", arguments=[["x-match", "S", "most"]]),
    _one("basic.get", queue=""),
    _one("queue.purge", queue=""),
    _text("queue.bind", "key", queue="q1", exchange="amq.direct"),
    _text("queue.declare", "queue"),
    _text("exchange.declare", "exchange", type="direct"),
    lambda lot, channel: [_publish(channel, exchange="nosuch")],
    lambda lot, channel: [_publish(channel, exchange="amq.rabbitmq.trace")],
    lambda lot, channel: [_publish(channel, immediate=True)],
    lambda lot, channel: [_publish(channel, class_id=50)],
    lambda lot, channel: [_publish(channel, stated=3)],
    lambda lot, channel: [_publish(channel, exchange="\xff\xfe")],
    lambda lot, channel: [Op(channel, "exchange.delete", {"exchange": lot.choice(EXCHANGES), "if_unused": True})],
)
