"""Raw message properties are checked once, as they arrive; no other component checks them."""

from __future__ import annotations

import re

from broker_plugin.amqp.protocol.codec import SyntaxProblem
from broker_plugin.embedded.errors import precondition
from broker_plugin.embedded.field_table import TooDeep, read_table

HEADERS = 1 << 13
EXPIRATION = 1 << 8
USER_ID = 1 << 4

_SHORT, _TABLE, _OCTET, _LONG_LONG = range(4)
_LAYOUT = (
    (1 << 15, _SHORT),  # content-type
    (1 << 14, _SHORT),  # content-encoding
    (1 << 13, _TABLE),  # headers
    (1 << 12, _OCTET),  # delivery-mode
    (1 << 11, _OCTET),  # priority
    (1 << 10, _SHORT),  # correlation-id
    (1 << 9, _SHORT),  # reply-to
    (1 << 8, _SHORT),  # expiration
    (1 << 7, _SHORT),  # message-id
    (1 << 6, _LONG_LONG),  # timestamp
    (1 << 5, _SHORT),  # type
    (1 << 4, _SHORT),  # user-id
    (1 << 3, _SHORT),  # app-id
    (1 << 2, _SHORT),  # cluster-id
)
_INTEGER = re.compile(r"[+-]?[0-9]+")


class PropertyCheck:
    """Checks what clients send; what one connection sends is often the same, so what passed is remembered."""

    def __init__(self, user: str) -> None:
        self._user = user
        self.passed: set[bytes] = set()

    def __call__(self, properties: bytes) -> None:
        """502 if the properties are malformed, 406 for a wrong user-id or expiration (RabbitMQ's texts)."""
        if properties in self.passed:
            return
        values = _walk(properties)
        if headers := values.get(HEADERS):
            _check_table(headers)
        user = values.get(USER_ID)
        if user and user != self._user.encode():
            shown = user.decode(errors="replace")
            raise precondition(f"user_id property set to '{shown}' but authenticated user was '{self._user}'")
        if (expiration := values.get(EXPIRATION)) is not None:
            self._check_expiration(expiration.decode(errors="replace"))
        if len(self.passed) >= 256:
            self.passed.clear()
        self.passed.add(properties)

    @staticmethod
    def _check_expiration(text: str) -> None:
        number = _INTEGER.match(text)
        if number is None:
            problem = "no_integer"
        elif number.end() < len(text):
            problem = f'{{leftover_string,"{text[number.end() :]}"}}'
        elif int(text) < 0:
            problem = f"{{value_negative,{int(text)}}}"
        else:
            return
        raise precondition(f"invalid expiration '{text}': {problem}")


def _walk(properties: bytes) -> dict[int, bytes]:
    """The values that are looked at, by flag. 502 unless the list has exactly the length that its flags say."""
    size = len(properties)
    if size < 2:
        raise SyntaxProblem("message properties are cut short")
    flags = properties[0] << 8 | properties[1]
    if flags & 3:
        raise SyntaxProblem(f"message properties have unknown flags {flags:#06x}")
    at = 2
    values: dict[int, bytes] = {}
    for flag, kind in _LAYOUT:
        if flags & flag:
            start = at
            if kind == _SHORT:
                start += 1
                at = start + (properties[at] if at < size else 0)
            elif kind == _TABLE:
                at += 4 + int.from_bytes(properties[at : at + 4], "big")
            else:
                at += 1 if kind == _OCTET else 8
            if flag & (HEADERS | EXPIRATION | USER_ID):
                values[flag] = properties[start:at]
    if at != size:
        raise SyntaxProblem("message properties have another length than their flags say")
    return values


def _check_table(data: bytes) -> None:
    try:
        read_table(data)
    except TooDeep as error:
        raise SyntaxProblem(f"message headers are {error}") from None
    except (ValueError, IndexError) as error:
        raise SyntaxProblem(f"cannot decode message headers: {error}") from None
