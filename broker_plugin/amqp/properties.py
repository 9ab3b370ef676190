"""Raw message properties are checked once, as they arrive; nobody else doubts them."""

from __future__ import annotations

import re

from broker_plugin.amqp.codec import SyntaxProblem, decode_properties
from broker_plugin.embedded.errors import precondition

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
        flags = self._walk(properties)
        if flags & (EXPIRATION | USER_ID):
            self._check_values(properties)
        if len(self.passed) >= 256:
            self.passed.clear()
        self.passed.add(properties)

    def _walk(self, properties: bytes) -> int:
        """Whether the property list has the length that its flags say; returns the flags."""
        size = len(properties)
        if size < 2:
            raise SyntaxProblem("message properties are cut short")
        flags = properties[0] << 8 | properties[1]
        if flags & 3:
            raise SyntaxProblem(f"message properties have unknown flags {flags:#06x}")
        at = 2
        try:
            for flag, kind in _LAYOUT:
                if not flags & flag:
                    continue
                if kind == _SHORT:
                    at += 1 + properties[at]
                elif kind == _OCTET:
                    at += 1
                elif kind == _LONG_LONG:
                    at += 8
                else:
                    at += 4 + int.from_bytes(properties[at : at + 4], "big")
        except IndexError:
            at = size + 1
        if at != size:
            raise SyntaxProblem("message properties have another length than their flags say")
        if flags & HEADERS:
            decode_properties(properties)
        return flags

    def _check_values(self, properties: bytes) -> None:
        values = decode_properties(properties)
        if values.user_id and values.user_id != self._user:
            raise precondition(f"user_id property set to '{values.user_id}' but authenticated user was '{self._user}'")
        if values.expiration is not None:
            self._check_expiration(values.expiration)

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
