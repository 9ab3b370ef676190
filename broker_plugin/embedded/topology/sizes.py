"""How many bytes what is declared takes in memory, about.

A client can give each queue, exchange and binding a table of arguments as long as a frame. All nodes keep it: as it was
given, as values, and as what tells it from others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

QUEUE_BYTES: Final = 1000
"""That a queue without a name and arguments is counted for; an exchange as well."""
BINDING_BYTES: Final = 600
"""The same of a binding."""
ENTRY_BYTES: Final = 100
"""Of each name in a table, beside its octets and its value"""
VALUE_BYTES: Final = 20
"""Of each value, beside the octets of a text"""
COPIES: Final = 4
"""How often octets of a text are there"""
_PLAIN = frozenset({int, bool, float, type(None)})
_TEXTS = (str, bytes, bytearray)


def queue_bytes(name: str, arguments: Mapping[str, Any]) -> int:
    """What a queue or an exchange is counted for."""
    return QUEUE_BYTES + COPIES * len(name) + argument_bytes(arguments)


def binding_bytes(key: str, arguments: Mapping[str, Any]) -> int:
    """What a binding is counted for."""
    return BINDING_BYTES + COPIES * len(key) + argument_bytes(arguments)


def argument_bytes(value: object) -> int:
    """What a value of a table is counted for, or all of a table."""
    if isinstance(value, dict):
        size = ENTRY_BYTES * len(value)
        for name, each in value.items():
            size += COPIES * len(name) + (VALUE_BYTES if type(each) in _PLAIN else argument_bytes(each))
        return size
    if isinstance(value, list):
        return VALUE_BYTES + sum(VALUE_BYTES if type(each) in _PLAIN else argument_bytes(each) for each in value)
    if isinstance(value, _TEXTS):
        return VALUE_BYTES + COPIES * len(value)
    return VALUE_BYTES
