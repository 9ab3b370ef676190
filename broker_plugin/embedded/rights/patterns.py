"""Patterns of names in RabbitMQ's rules: regular expressions that are looked for anywhere in a name.

They are matched by RE2, whose time grows with the length of a name and with nothing else that a client chooses. RE2
knows no look-around and no references back; of those, what RabbitMQ's users write most is understood: names that must
not begin with something (``^(?!amq\\.)``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import re2

REMEMBERED = 20_000
"""Patterns that are kept compiled, as many as there can be policies: names are compared with all of these in turn"""
LARGEST_BYTES = 1 << 20
"""Of a compiled pattern"""
NOTHING = "^$"
"""What the empty pattern means: no name but the empty one"""
_NOT_AT_START = "^(?!"
_REPEATS = ("*", "+", "?", "{")

Matches = Callable[[str], bool]
"""Whether a name fits."""


class PatternRefused(ValueError):
    """A text that is no pattern, with the reason."""


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = LARGEST_BYTES
    return options


_OPTIONS = _options()


@lru_cache(REMEMBERED)
def matcher(pattern: str) -> Matches:
    """Tells which names fit a pattern. Octets are compared, as RabbitMQ does. Raises PatternRefused."""
    forbidden, rest = _split(pattern)
    wanted = _compiled(rest or NOTHING if not forbidden else rest)
    unwanted = [_compiled(f"^(?:{each})") for each in forbidden]

    def matches(name: str) -> bool:
        octets = _octets(name)
        return wanted.search(octets) is not None and not any(each.search(octets) for each in unwanted)

    return matches


def fits(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern; none fits what is no pattern."""
    try:
        return matcher(pattern)(name)
    except PatternRefused:
        return False


def literal(text: str) -> str:
    """The pattern of this text and no other."""
    return bytes(re2.escape(_octets(text))).decode("utf-8", "surrogateescape")


def _split(pattern: str) -> tuple[list[str], str]:
    """What a name must not begin with, and the pattern without that."""
    forbidden: list[str] = []
    rest = pattern
    while rest.startswith(_NOT_AT_START):
        end = next((at for at, sign, depth in _signs(rest) if sign == ")" and not depth), None)
        if end is None or rest[end + 1 : end + 2] in _REPEATS:
            return [], pattern
        forbidden.append(rest[len(_NOT_AT_START) : end])
        rest = "^" + rest[end + 1 :]
    if forbidden and any(sign == "|" and not depth for _, sign, depth in _signs(rest)):
        return [], pattern
    return forbidden, rest


def _signs(pattern: str) -> Iterator[tuple[int, str, int]]:
    """The signs of a pattern that are neither escaped nor in a class, with where they stand and how many groups are
    open there."""
    at, depth = 0, 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif sign == "[":
            end = pattern.find("]", at + (3 if pattern[at + 1 : at + 2] == "^" else 2))
            at = end if end >= 0 else len(pattern)
        else:
            depth += (sign == "(") - (sign == ")")
            yield at, sign, depth
        at += 1


def _compiled(pattern: str) -> re2._Regexp[bytes]:
    try:
        return re2.compile(_octets(pattern), _OPTIONS)
    except UnicodeEncodeError:
        raise PatternRefused(f"{pattern!r} is no pattern that can be matched here: it is no text") from None
    except re2.error as error:
        reason = error.args[0] if error.args else "?"
        text = reason.decode("latin-1") if isinstance(reason, bytes) else str(reason)
        raise PatternRefused(f"{pattern!r} is no pattern that can be matched here: {text}") from None


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
