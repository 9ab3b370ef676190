"""What programs are made of: names, declarations, properties, tables and bodies, drawn by lot."""

from __future__ import annotations

from random import Random
from typing import Any

Entry = list[Any]
QUEUES = ("q1", "q2", "q3", "q4")
UNORDERED = "q6"
"""Several channels publish to it at once, so what is in it has no certain order; it is looked at only at the end."""
EXCHANGES = ("e1", "e2", "e3")
KEYS = ("k", "a.b", "a.*", "#", "a.b.c", "q1", "q2", "")
PLAIN_KEYS = ("k", "a.b", "a.b.c", "q1", "q2", "q3", "q4", "", "nowhere")

ARGUMENTS: tuple[list[Entry], ...] = (
    [["x-max-length", "I", 1000000]],
    [["x-message-ttl", "I", 86400000]],
    [["x-message-ttl", "l", 86400000], ["x-max-length-bytes", "l", 1 << 40]],
    [["x-expires", "I", 86400000]],
    [["x-queue-mode", "S", "lazy"]],
    [["x-dead-letter-exchange", "S", "no.such.exchange"]],
    [["x-dead-letter-exchange", "S", "no.such.exchange"], ["x-dead-letter-routing-key", "S", "k"]],
    [["x-overflow", "S", "drop-head"], ["x-max-length", "s", 30000]],
    [["x-queue-type", "S", "classic"]],
    [["anything", "F", [["deep", "A", [["I", 1], ["S", "two"]]]]]],
)
"""Which RabbitMQ takes, and which change nothing while a program runs."""

REFUSED_ARGUMENTS: tuple[list[Entry], ...] = (
    [["x-max-length", "I", -1]],
    [["x-max-length", "S", "many"]],
    [["x-message-ttl", "I", -5]],
    [["x-message-ttl", "S", "10"]],
    [["x-expires", "I", 0]],
    [["x-queue-mode", "S", "busy"]],
    [["x-overflow", "S", "explode"]],
    [["x-dead-letter-routing-key", "S", "k"]],
    [["x-dead-letter-exchange", "I", 5]],
    [["x-max-priority", "I", 256]],
    [["x-single-active-consumer", "S", "yes"]],
    [["x-queue-type", "S", "heap"]],
)

HEADER_VALUES: tuple[Entry, ...] = (
    ["S", "red"],
    ["S", "blue"],
    ["I", 1],
    ["I", 2],
    ["t", True],
    ["l", 1],
    ["V", None],
    ["d", 1.5],
    ["s", 1],
)
ANY_VALUES: tuple[Entry, ...] = (
    *HEADER_VALUES,
    ["b", -3],
    ["T", 1700000000],
    ["T", 1 << 62],
    ["D", [2, 314]],
    ["x", "\x00\xff"],
    ["S", "\xff\xfe"],
    ["F", [["in", "F", [["side", "t", False]]]]],
    ["A", [["S", "a"], ["F", []], ["A", []]]],
    ["f", 0.5],
)


def queue_flavour(lot: Random) -> dict[str, Any]:
    """How one queue is declared throughout a program."""
    found: dict[str, Any] = {"durable": lot.random() < 0.6, "auto_delete": lot.random() < 0.2}
    if lot.random() < 0.15:
        found["exclusive"] = True
        found["durable"] = False
    if lot.random() < 0.3:
        found["arguments"] = lot.choice(ARGUMENTS)
    return found


def exchange_flavour(lot: Random, others: tuple[str, ...]) -> dict[str, Any]:
    """How one exchange is declared throughout a program."""
    kind = lot.choice(("direct", "fanout", "topic", "headers"))
    found: dict[str, Any] = {"type": kind, "durable": lot.random() < 0.5, "auto_delete": lot.random() < 0.25}
    if lot.random() < 0.15:
        found["internal"] = True
    if lot.random() < 0.25:
        found["arguments"] = [["alternate-exchange", "S", lot.choice(others)]]
    return found


def headers(lot: Random, values: tuple[Entry, ...] = HEADER_VALUES) -> list[Entry]:
    """A few headers."""
    names = lot.sample(("colour", "size", "x-other"), lot.randrange(3) + 1)
    if values is ANY_VALUES and lot.random() < 0.2:
        names.append("\xff\xfe")
    return [[name, *lot.choice(values)] for name in names]


def binding(lot: Random) -> dict[str, Any]:
    """Key and arguments of a binding."""
    found: dict[str, Any] = {"key": lot.choice(KEYS)}
    if lot.random() < 0.4:
        mode = lot.choice(([], [["x-match", "S", "any"]], [["x-match", "S", "all"]], [["x-match", "S", "any-with-x"]]))
        found["arguments"] = [*mode, *headers(lot)]
    return found


def properties(lot: Random) -> dict[str, Any]:
    """Any of the fourteen, mostly few."""
    drawn: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": "\xc3\xa4",
        "headers": headers(lot, ANY_VALUES if lot.random() < 0.5 else HEADER_VALUES),
        "delivery_mode": lot.choice((1, 2, 2)),
        "priority": lot.choice((0, 5, 255)),
        "correlation_id": "c" * lot.choice((0, 1, 255)),
        "reply_to": "somewhere",
        "expiration": "86400000",
        "message_id": "\xff\xfe",
        "timestamp": lot.choice((0, 1700000000, 1700000000000000, (1 << 64) - 1)),
        "type": "t",
        "user_id": "guest",
        "app_id": "",
        "cluster_id": "c",
    }
    chance = lot.choice((0.0, 0.1, 0.1, 0.5, 1.0))
    return {name: value for name, value in drawn.items() if lot.random() < chance}


def size(lot: Random) -> dict[str, Any]:
    """Of a body, and in how many frames it is sent."""
    drawn = lot.random()
    if drawn < 0.06:
        return {"empty": True}
    if drawn < 0.7:
        return {}
    if drawn < 0.9:
        return {"size": lot.randrange(1, 300), "frames": lot.choice((1, 1, 2, 3))}
    if drawn < 0.97:
        return {"size": lot.randrange(4000, 20000), "frames": lot.randrange(1, 5)}
    return {"size": lot.choice((131064, 131065, 200000)), "frames": lot.randrange(1, 4)}
