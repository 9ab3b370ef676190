"""Field tables (AMQP 0-9-1, 4.2.5.5, with RabbitMQ's types), of whatever names and values RabbitMQ takes.

A name that is no UTF-8 becomes text by ``text_of``. A timestamp behind the year 9999, which no date can say, is an
``Ext`` of its eight octets: it can be stored, and equals itself and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
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
        at, value = _value(data, at, depth)
        found.append(value)
    _check(at == end, "an array")
    return at, found


def _value(data: bytes, at: int, depth: int) -> Read:
    kind = data[at : at + 1]
    at += 1
    if kind == b"F":
        return _table(data, at, depth + 1)
    if kind == b"A":
        return _array(data, at, depth + 1)
    if kind in b"Sx":
        start, at = _bounds(data, at)
        return at, _text(data[start:at]) if kind == b"S" else data[start:at]
    if kind == b"T":
        return at + 8, _timestamp(_octets(data, at, 8))
    fixed = _FIXED.get(kind)
    if fixed is None:
        raise ValueError(f"Unknown type: {kind!r}")
    size, read = fixed
    return at + size, read(_octets(data, at, size))[1]


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


_FIXED: dict[bytes, tuple[int, Callable[[bytes], tuple[int, Any]]]] = {
    b"t": (1, decode.boolean),
    b"b": (1, decode.short_short_int),
    b"B": (1, decode.short_short_uint),
    b"s": (2, decode.short_int),
    b"u": (2, decode.short_uint),
    b"I": (4, decode.long_int),
    b"i": (4, decode.long_uint),
    b"l": (8, decode.long_long_int),
    b"L": (8, decode.long_long_int),
    b"f": (4, decode.floating_point),
    b"d": (8, decode.double),
    b"D": (5, decode.decimal),
    b"V": (0, decode.void),
    b"\0": (0, decode.void),  # some clients write it so
}
"""Of each type of fixed length: octets, and how they are read"""
