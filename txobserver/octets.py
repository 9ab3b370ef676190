"""Octets that should be text and need not be: routing keys, and names in tables (docs/decisions/octets-as-text.md).

Text is kept as it is. An octet that is no part of UTF-8 stands as two of Unicode's noncharacters, which are for use
inside a program and hardly ever come in from outside: one for its upper four bits, one for its lower. Should one come
in, its own octets are written so too. So different octets are different texts, and come out as they came in.
"""

from __future__ import annotations

import re

_UPPER, _LOWER = "\ufdd0", "\ufde0"
"""That for 0; the others follow"""
_ODD = re.compile("[\udc80-\udcff\ufdd0-\ufdef]")
_PAIR = re.compile("([\ufdd8-\ufddf])([\ufde0-\ufdef])")


def text_of(octets: bytes) -> str:
    """These octets as text that can be stored."""
    text = octets.decode(errors="surrogateescape")
    return text if text.isascii() else _ODD.sub(_escaped, text)


def as_sent(text: str) -> str:
    """What ``text_of`` made, as it was sent, and octets that are no UTF-8 as Python writes them (``surrogateescape``).

    To be compared with other text; it cannot be stored.
    """
    return text if text.isascii() else octets_of(text).decode(errors="surrogateescape")


def octets_of(text: str) -> bytes:
    """The octets that ``text_of`` was given."""
    return _PAIR.sub(_unescaped, text).encode(errors="surrogateescape")


def _escaped(odd: re.Match[str]) -> str:
    octets = odd[0].encode(errors="surrogateescape")
    return "".join(chr(ord(_UPPER) + (octet >> 4)) + chr(ord(_LOWER) + (octet & 15)) for octet in octets)


def _unescaped(pair: re.Match[str]) -> str:
    upper, lower = ord(pair[1]) - ord(_UPPER), ord(pair[2]) - ord(_LOWER)
    return chr(0xDC00 + (upper << 4 | lower))
