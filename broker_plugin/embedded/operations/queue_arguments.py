"""What RabbitMQ 4.0 refuses in the arguments of queue.declare and basic.consume, with its texts.

What it takes and acts on, and this broker does not, is the matter of ``broker_plugin.embedded.unsupported``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from broker_plugin.embedded.errors import located, precondition, type_name
from txobserver.policies import LONGEST_EXPIRY


class QueueDeclare(NamedTuple):
    """A declaration; ``name`` "" asks for a name of the broker's making. An exclusive queue is never durable."""

    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, Any] = {}


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f'"expected integer, got {type_name(value)}"')
    return value


def _not_negative(value: object, arguments: Mapping[str, Any]) -> None:
    if _number(value) < 0:
        raise ValueError(f"{{value_negative,{value}}}")


def _expiry(value: object, arguments: Mapping[str, Any]) -> None:
    _not_negative(value, arguments)
    if _number(value) > LONGEST_EXPIRY:
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


def _one_of(values: tuple[object, ...], problem: str) -> Callable[[object, Mapping[str, Any]], None]:
    def check(value: object, arguments: Mapping[str, Any]) -> None:
        if not isinstance(value, type(values[0])) or isinstance(value, bool):
            raise ValueError(f"{{unacceptable_type,{type_name(value)}}}")
        if value not in values:
            raise ValueError(problem)

    return check


def _group_size(value: object, arguments: Mapping[str, Any]) -> None:
    _not_negative(value, arguments)
    if _number(value) == 0:
        raise ValueError("{value_zero,0}")


def _max_priority(value: object, arguments: Mapping[str, Any]) -> None:
    _not_negative(value, arguments)
    if _number(value) > 255:
        raise ValueError(f"{{max_value_exceeded,{value}}}")


_CHECKS: dict[str, Callable[[object, Mapping[str, Any]], None]] = {
    "x-expires": _positive_expiry,
    "x-message-ttl": _expiry,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-dead-letter-strategy": _one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-priority": _max_priority,
    "x-overflow": _overflow,
    "x-queue-type": _kind,
    "x-queue-mode": _mode,
    "x-queue-version": _one_of((1, 2), "unsupported queue version"),
    "x-queue-leader-locator": _one_of(
        ("client-local", "balanced", "random", "least-leaders"), "invalid_queue_locator_arg"
    ),
    "x-quorum-initial-group-size": _group_size,
    "x-single-active-consumer": _flag,
}


_OF_STREAMS = ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")
_OF_OTHER_TYPES = {
    "classic": (
        "x-dead-letter-strategy",
        "x-delivery-limit",
        "x-max-in-memory-bytes",
        "x-max-in-memory-length",
        "x-quorum-initial-group-size",
        *_OF_STREAMS,
    ),
    "quorum": ("x-max-priority", "x-queue-master-locator", "x-queue-mode", "x-queue-version", *_OF_STREAMS),
}
"""Arguments that a queue of this type cannot have"""

_CONSUMER_OF_STREAMS = ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered")


def _check_names(
    queue: str, declared: Mapping[str, Any], given: Mapping[str, Any], refused: Mapping[str, Iterable[str]]
) -> None:
    """406 for arguments that RabbitMQ has only for queues of another type than the ``declared`` one."""
    kind = declared.get("x-queue-type", "classic")
    for name in refused.get(kind, ()):
        if name in given:
            raise precondition(f"invalid arg '{name}' for {located('queue', queue)} of queue type rabbit_{kind}_queue")


def check_consumer_arguments(queue: str, declared: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """406 for an argument of basic.consume that RabbitMQ would refuse. ``declared``: those of the queue."""
    if "x-priority" in arguments:
        try:
            _number(arguments["x-priority"])
        except ValueError as error:
            raise precondition(f"invalid arg 'x-priority' for {located('queue', queue)}: {error}") from None
    _check_names(queue, declared, arguments, dict.fromkeys(_OF_OTHER_TYPES, _CONSUMER_OF_STREAMS))


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
    _check_names(request.name, arguments, arguments, _OF_OTHER_TYPES)


def _check_quorum(request: QueueDeclare) -> None:
    for flag, refused in (
        ("exclusive-owner", request.exclusive),
        ("auto-delete", request.auto_delete),
        ("non-durable", not request.durable),
    ):
        if refused:
            raise precondition(f"invalid property '{flag}' for {located('queue', request.name)}")
