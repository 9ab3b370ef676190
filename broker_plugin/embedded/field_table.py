"""Field tables (AMQP 0-9-1, 4.2.5.5, with RabbitMQ's types), of whatever names and values RabbitMQ takes.

They are read once from the beginning to the end, here: pamqp copies what is left of an array for each of its values.

A name that is no UTF-8 becomes text by ``text_of``. A timestamp behind the year 9999, which no date can say, is an
``Ext`` of its eight octets: it can be stored, and equals itself and nothing else.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec
from pamqp import decode

from txobserver.octets import text_of

MAX_DEPTH = 100
"""Tables within tables. A reader of them recurses; what has passed here can be read wherever it is needed."""
FAR_TIMESTAMP: Final = ord("T")
"""Code of the ``Ext``"""

Read = tuple[int, Any]
"""The offset behind a value, and the value"""


class TooDeep(ValueError):
    """Tables within tables beyond ``MAX_DEPTH``."""


def read_table(data: bytes, at: int = 0) -> tuple[int, dict[str, Any]]:
    """The offset behind the table that begins at ``at``, and the table. ValueError unless it is whole and no more."""
    return _table(data, at, 0)


def _table(data: bytes, at: int, depth: int) -> tuple[int, dict[str, Any]]:
    at, end = _inside(data, at, depth)
    found: dict[str, Any] = {}
    while at < end:
        name = at + 1
        at = name + data[at]
        _check(at < end, "a name in a table")
        value = at
        at, found[text_of(data[name:value])] = _value(data, at, depth)
    _check(at == end, "a table")
    return at, found


def _array(data: bytes, at: int, depth: int) -> tuple[int, list[Any]]:
    at, end = _inside(data, at, depth)
    found: list[Any] = []
    while at < end:
        kind = data[at]
        if kind in (VOID, ZERO):  # a frame may hold a hundred thousand of them
            at += 1
            found.append(None)
        else:
            at, value = _value(data, at, depth)
            found.append(value)
    _check(at == end, "an array")
    return at, found


def _value(data: bytes, at: int, depth: int) -> Read:
    if at >= len(data):
        raise ValueError("a value goes beyond its end")
    kind = data[at]
    at += 1
    if kind in (VOID, ZERO):
        return at, None
    number = _NUMBERS.get(kind)
    if number is not None:
        end = at + number.size
        _check(end <= len(data), "a value")
        return end, number.unpack_from(data, at)[0]
    if kind == TABLE:
        return _table(data, at, depth + 1)
    if kind == ARRAY:
        return _array(data, at, depth + 1)
    if kind in (TEXT, OCTETS):
        start, at = _bounds(data, at)
        return at, _text(data[start:at]) if kind == TEXT else data[start:at]
    if kind == TIMESTAMP:
        return at + 8, _timestamp(_octets(data, at, 8))
    if kind == DECIMAL:
        return at + 5, decode.decimal(_octets(data, at, 5))[1]
    raise ValueError(f"Unknown type: {data[at - 1 : at]!r}")


def _inside(data: bytes, at: int, depth: int) -> tuple[int, int]:
    if depth >= MAX_DEPTH:
        raise TooDeep(f"more than {MAX_DEPTH} tables deep")
    return _bounds(data, at)


def _bounds(data: bytes, at: int) -> tuple[int, int]:
    """Where that begins, and ends, whose length in four octets stands here."""
    end = at + 4 + int.from_bytes(_octets(data, at, 4), "big")
    _check(end <= len(data), "a length")
    return at + 4, end


def _octets(data: bytes, at: int, size: int) -> bytes:
    _check(at + size <= len(data), "a value")
    return data[at : at + size]


def _check(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(f"{what} goes beyond its end")


def _text(octets: bytes) -> str | bytes:
    """A long string, which is text for most and need not be."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def _timestamp(octets: bytes) -> Any:
    try:
        return decode.timestamp(octets)[1]
    except (ValueError, OverflowError, OSError):
        return msgspec.msgpack.Ext(FAR_TIMESTAMP, octets)


TABLE, ARRAY, TEXT, OCTETS, TIMESTAMP, DECIMAL, VOID = b"FASxTDV"
ZERO: Final = 0
"""Void, as some clients write it"""
_NUMBERS: Final = {
    ord("t"): struct.Struct(">?"),
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): struct.Struct(">l"),
    ord("i"): struct.Struct(">L"),
    ord("l"): struct.Struct(">q"),
    ord("L"): struct.Struct(">q"),
    ord("f"): struct.Struct(">f"),
    ord("d"): struct.Struct(">d"),
}
"""How each kind of number is read; a truth value is true unless it is 0"""
