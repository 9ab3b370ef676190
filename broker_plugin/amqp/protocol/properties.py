"""Raw message properties are checked once, as they arrive; no other component checks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from broker_plugin.amqp.protocol.codec import SyntaxProblem
from broker_plugin.embedded.errors import precondition
from broker_plugin.embedded.field_table import TooDeep, read_table
from broker_plugin.embedded.unsupported import Unsupported

HEADERS = 1 << 13
REPLY_TO = 1 << 9
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
LONGEST_REMEMBERED = 1024
"""Bytes of properties that are remembered; longer ones hardly come twice."""
REMEMBERED_BYTES = 100
"""That properties are counted for beside their own bytes, where they are remembered."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DIRECT_REPLY = b"amq.rabbitmq.reply-to"


class PropertyCheck:
    """Checks what clients send; what one connection sends is often the same, so what passed is remembered.

    What has passed with a warning is not: the warning names the exchange, and the next message may go to another one.
    ``bytes``: that this takes.
    """

    def __init__(self, user: str, unsupported: Unsupported) -> None:
        self._user = user
        self._unsupported = unsupported
        self.passed: set[bytes] = set()
        self.bytes = 0

    def __call__(self, properties: bytes, exchange: str) -> None:
        """502 if the properties are malformed, 406 for a wrong user-id or expiration (RabbitMQ's texts).

        And 406 for what RabbitMQ acts on and this broker does not, unless that is only warned of.
        """
        if properties in self.passed:
            return
        values = _walk(properties)
        headers = _table(values[HEADERS]) if HEADERS in values else {}
        user = values.get(USER_ID)
        if user and user != self._user.encode():
            shown = user.decode(errors="replace")
            raise precondition(f"user_id property set to '{shown}' but authenticated user was '{self._user}'")
        if (expiration := values.get(EXPIRATION)) is not None:
            self._check_expiration(expiration.decode(errors="replace"))
        if values.get(REPLY_TO) == _DIRECT_REPLY:
            raise precondition("fast reply consumer does not exist")
        if found := _unsupported(values, headers):
            for what in found:
                self._unsupported.meet("exchange", exchange, what)
            return
        if len(properties) > LONGEST_REMEMBERED:
            return
        if len(self.passed) >= 256:
            self.forget()
        self.passed.add(properties)
        self.bytes += len(properties) + REMEMBERED_BYTES

    def forget(self) -> None:
        """What passed is looked at again when it comes."""
        self.passed.clear()
        self.bytes = 0

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
            if flag & (HEADERS | REPLY_TO | EXPIRATION | USER_ID):
                values[flag] = properties[start:at]
    if at != size:
        raise SyntaxProblem("message properties have another length than their flags say")
    return values


def _unsupported(values: Mapping[int, bytes], headers: Mapping[str, Any]) -> list[str]:
    """What RabbitMQ acts on and this broker does not. It routes by CC and BCC, and takes BCC out, even an empty one."""
    found = ["property 'expiration'"] if EXPIRATION in values else []
    if headers.get("CC"):
        found.append("header 'CC'")
    if "BCC" in headers:
        found.append("header 'BCC'")
    return found


def _table(data: bytes) -> dict[str, Any]:
    try:
        return read_table(data)[1]
    except TooDeep as error:
        raise SyntaxProblem(f"message headers are {error}") from None
    except (ValueError, IndexError) as error:
        raise SyntaxProblem(f"cannot decode message headers: {error}") from None
