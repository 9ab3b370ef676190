"""What RabbitMQ's queue.declare refuses in a queue's arguments. What it takes is kept, whether it acts yet or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker_plugin.embedded.errors import located, precondition, type_name


class QueueDeclare(NamedTuple):
    """A declaration; ``name`` "" asks for a name of the broker's making. An exclusive queue is never durable."""

    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, Any] = {}


MAX_EXPIRY = (1 << 32) - 1
"""RabbitMQ's greatest time in milliseconds."""


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f'"expected integer, got {type_name(value)}"')
    return value


def _not_negative(value: object, arguments: Mapping[str, Any]) -> None:
    if _number(value) < 0:
        raise ValueError(f"{{value_negative,{value}}}")


def _expiry(value: object, arguments: Mapping[str, Any]) -> None:
    _not_negative(value, arguments)
    if _number(value) > MAX_EXPIRY:
        raise ValueError(f"{{value_too_large,{value}}}")


def _positive_expiry(value: object, arguments: Mapping[str, Any]) -> None:
    if _number(value) == 0:
        raise ValueError("{value_zero,0}")
    _expiry(value, arguments)


def _text(value: object, arguments: Mapping[str, Any]) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{{unacceptable_type,{type_name(value)}}}")


def _dead_letter_key(value: object, arguments: Mapping[str, Any]) -> None:
    _text(value, arguments)
    if "x-dead-letter-exchange" not in arguments:
        raise ValueError("routing_key_but_no_dlx_defined")


def _overflow(value: object, arguments: Mapping[str, Any]) -> None:
    _text(value, arguments)
    if value not in ("drop-head", "reject-publish", "reject-publish-dlx"):
        raise ValueError("invalid_overflow")


def _flag(value: object, arguments: Mapping[str, Any]) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{{unacceptable_type,{type_name(value)}}}")


def _mode(value: object, arguments: Mapping[str, Any]) -> None:
    _text(value, arguments)
    if value not in ("default", "lazy"):
        raise ValueError(f"\"unsupported queue mode '{value}'\"")


def _kind(value: object, arguments: Mapping[str, Any]) -> None:
    """Every durable queue is replicated, so a classic and a quorum queue are the same here."""
    _text(value, arguments)
    if value not in ("classic", "quorum"):
        raise ValueError(f"\"unsupported queue type '{value}'\"")


def _max_priority(value: object, arguments: Mapping[str, Any]) -> None:
    _not_negative(value, arguments)
    if _number(value) > 255:
        raise ValueError(f"{{max_value_exceeded,{value}}}")


_CHECKS: dict[str, Callable[[object, Mapping[str, Any]], None]] = {
    "x-expires": _positive_expiry,
    "x-message-ttl": _expiry,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-priority": _max_priority,
    "x-overflow": _overflow,
    "x-queue-type": _kind,
    "x-queue-mode": _mode,
    "x-single-active-consumer": _flag,
}


def check_queue_arguments(request: QueueDeclare) -> None:
    """406 for an argument that RabbitMQ would refuse, and for queue types that there are not here."""
    arguments = request.arguments
    exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(exchange, str):
        raise precondition(
            f"invalid type '{type_name(exchange)}' for arg 'x-dead-letter-exchange' in {located('queue', request.name)}"
        )
    if arguments.get("x-queue-type") == "quorum":
        _check_quorum(request)
    for name, check in _CHECKS.items():
        if name in arguments:
            try:
                check(arguments[name], arguments)
            except ValueError as error:
                raise precondition(f"invalid arg '{name}' for {located('queue', request.name)}: {error}") from None


def _check_quorum(request: QueueDeclare) -> None:
    for flag, refused in (
        ("exclusive-owner", request.exclusive),
        ("auto-delete", request.auto_delete),
        ("non-durable", not request.durable),
    ):
        if refused:
            raise precondition(f"invalid property '{flag}' for {located('queue', request.name)}")
