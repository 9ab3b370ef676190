"""Text that others have given, as people may look at it: in log lines, tables, errors, pages and plots.

A client names its queues and consumers, a peer itself, and both may put anything into a name: line ends that forge a
line of a log, escape sequences that a terminal obeys, signs that turn the direction of writing. All of that is shown as
an escape. What a program reads is never changed by this: JSON has the names as they are, in its own escapes.
"""

from __future__ import annotations

import re

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_OCTET = re.compile("([\ufdd8-\ufddf])([\ufde0-\ufdef])|([\udc80-\udcff])")
"""An octet that is no text, as ``txobserver.octets`` keeps it, or as Python does (``surrogateescape``)"""
_ODD = re.compile(r"[^\x20-\x7e]")


def printable(text: str) -> str:
    """The text in one line: what cannot be printed (controls, line ends, marks of direction, octets that are no text,
    blanks other than the space) becomes ``\\n``, ``\\x1b`` or ``\\u202e``. A backslash stays one.
    """
    if text.isascii() and text.isprintable():
        return text
    return _ODD.sub(lambda found: _escaped(found[0]), _OCTET.sub(_octet, text))


def plain(text: str) -> bool:
    """Whether people who see it can type it again: each character prints, and no blank stands at its ends."""
    return text.isprintable() and text == text.strip()


def json_line(encoded: str) -> str:
    """JSON without a character that cannot be printed: they can stand in its strings only, and become its escapes."""
    return _ODD.sub(lambda found: found[0] if found[0].isprintable() else _json_escaped(found[0]), encoded)


def _octet(found: re.Match[str]) -> str:
    upper, lower, lone = found.groups()
    return f"\\x{ord(lone) & 0xFF if lone else (ord(upper) & 15) << 4 | (ord(lower) & 15):02x}"


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
