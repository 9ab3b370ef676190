"""Walks the msgpack of events without making objects of them: what they say as numbers, and where their texts stand.

It is translated to machine code where that is possible (``recovery.compiled``); as plain Python it takes about twenty
times as long. The layouts are those of ``txobserver.events``. Rare kinds it steps over: they are decoded one by one.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i64_le
from mypy_extensions import i64

PUBLISH: Final = 3
SETTLE: Final = 4
DELIVERED: Final = 5
TX_OPEN: Final = 7
TX_ENQUEUE: Final = 8
TX_DEQUEUE: Final = 9
TX_PREPARE: Final = 10
TX_DECISION: Final = 11
WALKED: Final = (PUBLISH, SETTLE, DELIVERED, TX_OPEN, TX_ENQUEUE, TX_DEQUEUE, TX_PREPARE, TX_DECISION)
"""Tags of the kinds that are walked."""

ROW: Final = ("part", "tag", "transaction", "queue_id", "place", "replication_id", "value")
"""What stands in ``rows``, 64 bits each, -1 where there is nothing. ``value``: the reason of a removal, the outcome of
a decision, the count of a prepare. Of a prepare ``place`` and ``replication_id`` are where its participants begin and
end, of an event of another kind where it begins and ends itself."""
MESSAGE: Final = ("exchange", "routing_key", "properties", "body")
"""What stands in ``messages``, one for each event that has one: of each field where it begins and where it ends."""


class Walk:
    """What has been found so far, in both tables."""

    def __init__(self) -> None:
        self.rows = BytesWriter()
        self.messages = BytesWriter()

    def frame(self, data: bytes, begin: int, end: int, skip: int, count: int) -> None:
        """The array of events from ``begin`` up to ``end``: ``count`` of them behind the first ``skip``.

        Raises ValueError or IndexError for what no encoder of ours has written.
        """
        at: i64 = begin
        passed: i64 = skip
        wanted: i64 = count
        size: i64
        size, at = length(data, at)
        if passed + wanted > size:
            raise ValueError(f"{size} events are fewer than the frame says")
        for _ in range(passed):
            at = behind(data, at)
        for _ in range(wanted):
            at = self.event(data, at)
        if at > end:
            raise ValueError("the events end behind their frame")

    def event(self, data: bytes, at: i64) -> i64:
        """One event; where the next one begins."""
        begin = at
        _, at = length(data, at)
        tag: i64
        tag, at = number(data, at)
        if tag in (TX_ENQUEUE, PUBLISH):
            return self.message(data, at, tag)
        if tag in (TX_DEQUEUE, SETTLE):
            return self.removal(data, at, tag)
        if tag in (TX_OPEN, TX_DECISION, TX_PREPARE, DELIVERED):
            return self.short(data, at, tag)
        end = behind(data, begin)
        self.row(0, tag, -1, -1, begin, end, -1)
        return end

    def row(self, part: i64, tag: i64, tx: i64, queue: i64, place: i64, rid: i64, value: i64) -> None:
        """One row, in the order of ``ROW``."""
        rows = self.rows
        write_i64_le(rows, part)
        write_i64_le(rows, tag)
        write_i64_le(rows, tx)
        write_i64_le(rows, queue)
        write_i64_le(rows, place)
        write_i64_le(rows, rid)
        write_i64_le(rows, value)

    def message(self, data: bytes, at: i64, tag: i64) -> i64:
        """A publish, from its first field on."""
        tx: i64 = -1
        if tag == TX_ENQUEUE:
            tx, at = number(data, at)
        rid: i64
        rid, at = number(data, at)
        queues: i64
        queues, at = length(data, at)
        if queues == 0:
            self.row(0, tag, tx, -1, -1, rid, -1)
        queue: i64
        for part in range(queues):
            queue, at = number(data, at)
            self.row(part, tag, tx, queue, -1, rid, -1)
        _, at = length(data, at)
        size: i64
        for _ in range(4):
            size, at = length(data, at)
            write_i64_le(self.messages, at)
            at += size
            write_i64_le(self.messages, at)
        return at

    def removal(self, data: bytes, at: i64, tag: i64) -> i64:
        """A settle or a dequeue, from its first field on. The reason stands behind the entries."""
        tx: i64 = -1
        if tag == TX_DEQUEUE:
            tx, at = number(data, at)
        queue: i64
        queue, at = number(data, at)
        entries: i64
        reason: i64
        place: i64
        rid: i64
        reason, end = number(data, behind(data, at))
        entries, at = length(data, at)
        if entries == 0:
            self.row(0, tag, tx, queue, -1, -1, reason)
        for part in range(entries):
            _, at = length(data, at)
            place, at = number(data, at)
            rid, at = number(data, at)
            self.row(part, tag, tx, queue, place, rid, reason)
        return end

    def short(self, data: bytes, at: i64, tag: i64) -> i64:
        """What begins with a number, from there on."""
        first: i64
        first, at = number(data, at)
        if tag == TX_OPEN:
            self.row(0, tag, first, -1, -1, -1, -1)
            return at
        if tag == TX_DECISION:
            self.row(0, tag, first, -1, -1, -1, 1 if data[at] == 0xC3 else 0)
            return at + 1
        second: i64
        second, at = number(data, at)
        if tag == DELIVERED:
            self.row(0, tag, -1, first, second, -1, -1)
            return at
        end = behind(data, at)
        self.row(0, tag, first, -1, at, end, second)
        return end


def number(data: bytes, at: i64) -> tuple[i64, i64]:
    """The number that stands here, and where the next value begins."""
    mark: i64 = data[at]
    if mark < 0x80:
        return mark, at + 1
    if mark == 0xCF:
        value = read_i64_be(data, at + 1)
        if value < 0:
            raise ValueError("a number has more than 63 bits")
        return value, at + 9
    if mark == 0xCE:
        return bits32(data, at + 1), at + 5
    if mark == 0xCD:
        return bits16(data, at + 1), at + 3
    if mark == 0xCC:
        return data[at + 1], at + 2
    raise ValueError(f"no number of an event begins with {mark}")


def length(data: bytes, at: i64) -> tuple[i64, i64]:
    """The length of the text, bytes or array that begins here, and where its content does."""
    mark: i64 = data[at]
    if mark >> 5 == 5:
        return mark & 31, at + 1
    if mark >> 4 == 9:
        return mark & 15, at + 1
    if mark == 0xC4 or mark == 0xD9:
        return data[at + 1], at + 2
    if mark == 0xC5 or mark == 0xDA or mark == 0xDC:
        return bits16(data, at + 1), at + 3
    if mark == 0xC6 or mark == 0xDB or mark == 0xDD:
        return bits32(data, at + 1), at + 5
    raise ValueError(f"nothing of an event that has a length begins with {mark}")


def behind(data: bytes, at: i64) -> i64:
    """Where the value behind the one that begins here begins."""
    left: i64 = 1
    size: i64
    while left > 0:
        left -= 1
        mark: i64 = data[at]
        if mark < 0x80 or mark in (0xC0, 0xC2, 0xC3):
            at += 1
        elif 0xCC <= mark <= 0xCF:
            at = number(data, at)[1]
        else:
            size, at = length(data, at)
            if mark >> 4 == 9 or mark in (0xDC, 0xDD):
                left += size
            else:
                at += size
    return at


def bits16(data: bytes, at: i64) -> i64:
    """A number of two octets."""
    high: i64 = data[at]
    low: i64 = data[at + 1]
    return high << 8 | low


def bits32(data: bytes, at: i64) -> i64:
    """A number of four octets."""
    value = i64(read_i32_be(data, at))
    return value & 0xFFFFFFFF
