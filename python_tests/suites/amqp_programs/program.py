"""What a program is: steps of operations, as data that can be printed, counted, cut down and sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from python_tests.suites.amqp_programs import wire

DROP = "socket.drop"


class Op(NamedTuple):
    """One method on a channel, or octets.

    ``basic.publish`` has beside its arguments ``body`` (how it begins), ``size``, ``frames`` (in how many the body is
    sent), ``properties``, ``cut`` (how many frames are sent; all without it), ``class_id`` and ``stated`` (a false
    size). ``frame`` has ``kind`` and ``hex``. ``socket.drop`` ends the TCP connection, without a close. A ``delivery``
    of [n] is the n-th delivery outstanding on the channel.
    """

    channel: int
    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        shown = " ".join(f"{key}={item!r}" for key, item in self.arguments.items())
        return f"{self.channel} {self.name} {shown}".strip()


class Step(NamedTuple):
    """Operations that one connection sends at once. ``order``: 0 as they stand, else by this lot, each channel's
    frames in their order. ``writes``: in how many pieces the octets are written.
    """

    connection: str
    ops: tuple[Op, ...]
    order: int = 0
    writes: int = 1

    def __str__(self) -> str:
        how = (f" order {self.order}" if self.order else "") + (f" writes {self.writes}" if self.writes > 1 else "")
        return f"{self.connection}{how}: " + "; ".join(map(str, self.ops))


Program = tuple[Step, ...]


def digest(program: Program) -> str:
    """The same for the same program."""
    return hashlib.sha256(json.dumps(program).encode()).hexdigest()[:16]


def body_of(arguments: dict[str, Any]) -> bytes:
    """The body of a publish."""
    begin: bytes = arguments["body"].encode()
    return (begin + b"." * arguments.get("size", 0))[: max(len(begin), arguments.get("size", 0))]


def _publish(op: Op, frame_max: int) -> list[bytes]:
    arguments = op.arguments
    fields = {key: arguments[key] for key in ("exchange", "key", "mandatory", "immediate") if key in arguments}
    body = body_of(arguments) if not arguments.get("empty") else b""
    stated = arguments.get("stated", len(body))
    header = wire.content_header(stated, arguments.get("properties", {}), arguments.get("class_id", 60))
    frames = [
        wire.frame(wire.METHOD, op.channel, wire.method("basic.publish", fields)),
        wire.frame(wire.HEADER, op.channel, header),
    ]
    step = min(frame_max - 8, -(-len(body) // arguments.get("frames", 1))) or 1
    frames += [wire.frame(wire.BODY, op.channel, body[at : at + step]) for at in range(0, len(body), step)]
    return frames[: arguments.get("cut", len(frames))]


def frames_of(op: Op, frame_max: int = 131072) -> list[bytes]:
    """The frames of an operation whose delivery tag, if it has one, is a number."""
    if op.name == "basic.publish":
        return _publish(op, frame_max)
    if op.name == "frame":
        return [wire.frame(op.arguments["kind"], op.channel, bytes.fromhex(op.arguments["hex"]))]
    if op.name == DROP:
        return []
    if op.name == "octets":
        return [bytes.fromhex(op.arguments["hex"])]
    return [wire.frame(wire.METHOD, op.channel, wire.method(op.name, op.arguments))]


def octets_of(ops: Sequence[Op], order: int) -> bytes:
    """What is sent for them: channel 0 and octets that are no frames come last if the lot decides the order."""
    if not order:
        return b"".join(frame for op in ops for frame in frames_of(op))
    lanes: dict[int, list[bytes]] = {}
    last: list[bytes] = []
    for op in ops:
        (last if not op.channel else lanes.setdefault(op.channel, [])).extend(frames_of(op))
    lot, out = Random(order), []
    while lanes:
        channel = lot.choice(sorted(lanes))
        out.append(lanes[channel].pop(0))
        if not lanes[channel]:
            del lanes[channel]
    return b"".join(out + last)


def pieces(data: bytes, writes: int) -> list[bytes]:
    """The octets, cut into that many pieces at places that depend on nothing but them."""
    lot = Random(len(data) * 7 + writes)
    cuts = sorted(lot.randrange(len(data) + 1) for _ in range(writes - 1))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
