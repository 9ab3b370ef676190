"""Whether a declaration says the same as what is there (AMQP 0-9-1, rule "equivalent"; RabbitMQ's texts)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker_plugin.embedded.errors import located, precondition, type_name

QUEUE_ARGUMENTS = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-type",
    "x-quorum-initial-group-size",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-initial-cluster-size",
    "x-queue-leader-locator",
)
CLASSIC = (None, "classic")
"""What a classic queue may say of its type."""

EXCHANGE_ARGUMENTS = ("alternate-exchange",)


def check_flag(kind: str, name: str, flag: str, received: bool, current: bool) -> None:
    """406 if a flag of the declaration differs."""
    if received != current:
        raise precondition(
            f"inequivalent arg '{flag}' for {located(kind, name)}:"
            f" received '{str(received).lower()}' but current is '{str(current).lower()}'"
        )


def check_arguments(
    kind: str, name: str, received: Mapping[str, Any], current: Mapping[str, Any], keys: Iterable[str]
) -> None:
    """406 if one of the arguments that count differs."""
    for key in keys:
        wanted, there = received.get(key), current.get(key)
        if key == "x-queue-type" and wanted in CLASSIC and there in CLASSIC:
            continue
        if type(wanted) is type(there):
            if wanted != there:
                raise precondition(
                    f"inequivalent arg '{key}' for {located(kind, name)}: received '{wanted}' but current is '{there}'"
                )
        else:
            raise precondition(
                f"inequivalent arg '{key}' for {located(kind, name)}:"
                f" received {_described(wanted)} but current is {_described(there)}"
            )


def _described(value: object) -> str:
    if value is None:
        return "none"
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"the value '{shown}' of type '{type_name(value)}'"
