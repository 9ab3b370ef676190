"""What came back, as lines that are the same for the same behaviour: what a broker makes up or promises no order for
is left out.

On one channel and in one step: answers and closes in their order, then what was returned, then deliveries of each
consumer, then the numbers that were confirmed, then consumers that the broker has cancelled.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from python_tests.suites.amqp_programs import wire
from python_tests.suites.amqp_programs.client import Received

Lines = list[str]
MADE_UP = re.compile(r"amq\.(gen|ctag)-[\w-]+")
VIRTUAL_HOST = re.compile(r"vhost (\\?)'[^'\\]*\\?'")
"""A run may play several programs at once in RabbitMQ, each in a virtual host of its own."""

UNORDERED = ("basic.return", "basic.deliver", "basic.ack", "basic.nack", "basic.cancel", "heartbeat")


def content(received: Received) -> str:
    """A message as a few words: how its body begins, its size and checksum, its properties and headers as they came."""
    body = received.body
    shown = body[:24].decode("latin-1").rstrip(".")
    properties, headers = wire.read_headers(received.properties)
    listed = ",".join(entry.hex() for entry in headers)
    return f"{shown!r} {len(body)} {zlib.crc32(body):08x} {properties.hex()} headers=[{listed}]"


def line(received: Received) -> str:
    """One method."""
    fields = " ".join(f"{key}={item!r}" for key, item in received.fields.items() if key not in ("r1", "tag"))
    tag = f" tag={received.fields['tag']!r}" if "tag" in received.fields else ""
    more = " " + content(received) if received.name in ("basic.get-ok", "basic.deliver", "basic.return") else ""
    text = VIRTUAL_HOST.sub(r"vhost \1'/\1'", f"{received.name}{tag} {fields}{more}".rstrip())
    return MADE_UP.sub(r"amq.\1-*", text)


class Confirmed:
    """The numbers that are confirmed on one channel, and those of them that have not been told yet."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._untold: dict[str, list[int]] = {"basic.ack": [], "basic.nack": []}

    def take(self, received: Received) -> list[int]:
        """The numbers that this answers for the first time."""
        last = received.fields["delivery"]
        first = 1 if received.fields["multiple"] else last
        fresh = [number for number in range(first, last + 1) if number not in self._known]
        self._known.update(fresh)
        self._untold[received.name] += fresh
        return fresh

    def lines(self) -> Lines:
        """What has been confirmed, and what refused, since this was asked last."""
        untold, self._untold = self._untold, {"basic.ack": [], "basic.nack": []}
        words = {"basic.ack": "confirmed", "basic.nack": "refused"}
        return [f"{words[name]} {sorted(numbers)}" for name, numbers in untold.items() if numbers]


def by_channel(received: Iterable[Received], confirmed: dict[int, Confirmed], many: bool) -> dict[str, Lines]:
    """Everything of one step. ``many``: more than one operation was sent, so that counts of a queue are of no
    certain moment; where a channel ended, what is sent without being asked for may come before that or not; where the
    broker ended the connection, what its channels were about to say may be lost.
    """
    channels: dict[int, list[Received]] = {}
    for each in received:
        channels.setdefault(each.channel, []).append(each)
    over = 0 in channels and any(each.name.startswith("connection.close") for each in channels[0])
    if over and any(each.name == "connection.close" for each in channels[0]):
        channels = {0: channels[0]}
    found = {}
    for number, methods in sorted(channels.items()):
        ended = over or any(each.name.startswith("channel.close") for each in methods)
        lines = [_counted(line(each), many) for each in methods if each.name not in UNORDERED]
        lines += [line(each) for each in methods if each.name == "basic.return"]
        if not ended:
            lines += _unasked(methods, confirmed.setdefault(number, Confirmed()))
        else:
            confirmed.pop(number, None)
        if lines:
            found[str(number)] = lines
    return found


def _counted(text: str, many: bool) -> str:
    return re.sub(r"(messages|consumers)=\d+", r"\1=?", text) if many and text.startswith("queue.declare-ok") else text


def _unasked(methods: list[Received], confirmed: Confirmed) -> Lines:
    deliveries = sorted((each for each in methods if each.name == "basic.deliver"), key=lambda each: each.fields["tag"])
    lines = [line(each) for each in deliveries]
    lines += confirmed.lines()
    return lines + sorted(line(each) for each in methods if each.name == "basic.cancel")
