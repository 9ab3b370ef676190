"""What RabbitMQ acts on and this broker does not: refused, or accepted with a warning where the operator wants that.

A client that asks for a time to live, a bound or a priority and gets none loses or keeps messages against its wish, and
learns of it by the damage. So whatever would have an effect in RabbitMQ 4.0 and has none here is refused, and a text
names it. What has no effect there either (arguments that RabbitMQ does not know, and values that say what RabbitMQ does
without them) is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker_plugin.embedded.errors import located, precondition

Warned = Callable[[str, str, str], object]
"""Told a kind (``queue``, ``exchange``), a name, and what this client uses there without effect."""

KEPT = 10_000
"""Warnings that are remembered so that none is given twice. With more, they are forgotten and may be given again."""

MAX_PRIORITY = "x-max-priority"
_NO_LIMIT = "x-delivery-limit"

_AS_WITHOUT: dict[str, tuple[object, ...]] = {
    "x-dead-letter-strategy": ("at-most-once",),
    "x-overflow": ("drop-head",),
    "x-queue-leader-locator": ("client-local",),
    "x-single-active-consumer": (False,),
}
"""Values that say what RabbitMQ does without the argument."""

QUEUE_ARGUMENTS = (
    "x-consumer-timeout",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    _NO_LIMIT,
    "x-max-length",
    "x-max-length-bytes",
    MAX_PRIORITY,
    "x-message-ttl",
    "x-overflow",
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-quorum-initial-group-size",
    "x-single-active-consumer",
)
"""Of queue.declare, as RabbitMQ 4.0 acts on them. Those of streams are refused with the queue type."""

CONSUMER_ARGUMENTS = ("x-consumer-timeout", "x-priority")
"""Of basic.consume."""


def unsupported_of_queue(arguments: Mapping[str, Any]) -> list[str]:
    """Names of the arguments of a queue that RabbitMQ would act on and that have no effect here."""
    return [name for name in QUEUE_ARGUMENTS if name in arguments and not _as_without(name, arguments[name])]


def unsupported_of_consumer(arguments: Mapping[str, Any]) -> list[str]:
    """The same of a consumer. Priority 0 is RabbitMQ's default."""
    return [name for name in CONSUMER_ARGUMENTS if name in arguments and arguments[name] != 0]


def _as_without(name: str, value: object) -> bool:
    if name == _NO_LIMIT:  # a negative number asks for none, and there is none here
        return isinstance(value, int) and value < 0
    return value in _AS_WITHOUT.get(name, ())


class Unsupported:
    """How a broker meets what it does not support: it raises 406, or tells ``warned`` once of each, and goes on."""

    def __init__(self, warned: Warned | None = None) -> None:
        self._warned = warned
        self._told: set[tuple[str, str, str]] = set()

    @property
    def refuses(self) -> bool:
        """Whether it is refused."""
        return self._warned is None

    def meet(self, kind: str, name: str, what: str) -> None:
        """A client uses ``what`` at this queue or exchange."""
        if self._warned is None:
            raise precondition(
                f"unsupported {what} for {located(kind, name)}: it would have no effect here; leave it out"
            )
        met = (kind, name, what)
        if met not in self._told:
            if len(self._told) >= KEPT:
                self._told.clear()
            self._told.add(met)
            self._warned(kind, name, what)

    def meet_arguments(self, kind: str, name: str, arguments: list[str]) -> None:
        """A client gives these arguments, of which one text names all; none is nothing."""
        if arguments:
            listed = ", ".join(f"'{each}'" for each in arguments)
            self.meet(kind, name, f"arg{'s' if len(arguments) > 1 else ''} {listed}")
