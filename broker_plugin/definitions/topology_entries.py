"""Exchanges, queues and bindings, as a file of definitions says them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from broker_plugin.definitions.document import BindingEntry, ExchangeEntry, QueueEntry
from broker_plugin.definitions.found import ImportFound, titled
from broker_plugin.definitions.state import DefinitionsHeld
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.equivalence import EXCHANGE_ARGUMENTS, QUEUE_ARGUMENTS, check_arguments
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare, check_queue_arguments
from broker_plugin.embedded.topology.exchange import KINDS
from broker_plugin.embedded.topology.exchange import PREDECLARED as ALWAYS_THERE
from broker_plugin.embedded.topology.routers import check_headers_binding
from broker_plugin.embedded.unsupported import unsupported_of_queue
from txobserver.configuration import (
    PREDECLARED,
    BindingSpec,
    ExchangeSpec,
    binding_step,
    exchange_step,
    queue_step,
)
from txobserver.policies import ALTERNATE_EXCHANGE
from txobserver.vhosts import full_name, local_name

NOT_DURABLE: Final = "it is not durable, so it does not outlive its primary: clients declare it"
OTHERWISE: Final = "it is there already, or twice in the file, and declared otherwise"
TO_QUEUE: Final = "queue"
TO_EXCHANGE: Final = "exchange"


class TopologyEntries:
    """``found``: where steps go; ``state``: what is there already."""

    def __init__(self, found: ImportFound, state: DefinitionsHeld) -> None:
        self._found = found
        self._queues = {spec.name: (spec.auto_delete, spec.arguments) for spec in state.queues}
        self._exchanges = {spec.name: spec for spec in state.exchanges}

    def exchange(self, entry: ExchangeEntry, vhost: str) -> None:
        """One exchange; those that are always there are passed over."""
        if not entry.name or entry.name.startswith(PREDECLARED):
            return
        title, name = titled("exchange", entry.name, vhost), full_name(vhost, entry.name)
        spec = ExchangeSpec(name, entry.type, entry.auto_delete, entry.internal, entry.arguments)
        alternate = entry.arguments.get(ALTERNATE_EXCHANGE, "")
        if entry.type not in KINDS:
            self._found.leave_out(title, f"there is no exchange type {entry.type!r} here")
        elif not entry.durable:
            self._found.leave_out(title, NOT_DURABLE)
        elif not isinstance(alternate, str):
            self._found.leave_out(title, f"{ALTERNATE_EXCHANGE} is the name of an exchange")
        elif (there := self._exchanges.get(name)) is not None:
            self._met(title, "exchanges", _same_exchange(spec, there))
        elif self._found.take("exchanges", title, lambda: exchange_step(spec)):
            self._exchanges[name] = spec

    def queue(self, entry: QueueEntry, vhost: str) -> None:
        """One queue."""
        title, name = titled("queue", entry.name, vhost), full_name(vhost, entry.name)
        wanted = entry.auto_delete, entry.arguments
        if not entry.name:
            self._found.leave_out(title, "it has no name")
        elif entry.name.startswith(PREDECLARED):
            self._found.leave_out(title, f"names that begin with {PREDECLARED} are the broker's own")
        elif not entry.durable:
            self._found.leave_out(title, NOT_DURABLE)
        elif (why := _not_honoured(entry)) is not None:
            self._found.leave_out(title, why)
        elif (there := self._queues.get(name)) is not None:
            self._met(title, "queues", wanted[0] == there[0] and _same(QUEUE_ARGUMENTS, wanted[1], there[1]))
        elif self._found.take("queues", title, lambda: queue_step(name, *wanted)):
            self._queues[name] = wanted

    def binding(self, entry: BindingEntry, vhost: str) -> None:
        """One binding; that of each queue to the default exchange is passed over."""
        if not entry.source and entry.to_its_own_queue:
            return
        title = titled(f"binding of {entry.destination!r} to", entry.source, vhost)
        source, destination = full_name(vhost, entry.source), full_name(vhost, entry.destination)
        to_queue = entry.destination_type == TO_QUEUE
        if entry.destination_type not in (TO_QUEUE, TO_EXCHANGE):
            self._found.leave_out(title, "a binding leads to a queue or to an exchange")
        elif not entry.source:
            self._found.leave_out(title, "each queue is bound to the default exchange by its name, and in no other way")
        elif not self._has_exchange(source):
            self._found.leave_out(title, f"there is no durable exchange {entry.source!r}")
        elif not (destination in self._queues if to_queue else self._has_exchange(destination)):
            self._found.leave_out(title, f"there is no durable {entry.destination_type} {entry.destination!r}")
        elif (why := self._no_match(source, entry)) is not None:
            self._found.leave_out(title, why)
        else:
            spec = BindingSpec(source, destination, to_queue, entry.routing_key, entry.arguments)
            self._found.take("bindings", title, lambda: binding_step(spec))

    def _no_match(self, source: str, entry: BindingEntry) -> str | None:
        """Why an exchange of type headers would not take these arguments."""
        there = self._exchanges.get(source)
        kind = there.kind if there is not None else ALWAYS_THERE.get(local_name(source))
        try:
            if kind == "headers":
                check_headers_binding(entry.arguments)
        except AmqpError as error:
            return error.text
        return None

    def _met(self, title: str, section: str, same: bool) -> None:
        """One of this name is there. What a client may declare again may be imported again."""
        if same:
            self._found.there_already(section)
        else:
            self._found.leave_out(title, OTHERWISE)

    def _has_exchange(self, name: str) -> bool:
        return name in self._exchanges or local_name(name).startswith(PREDECLARED)


def _same_exchange(wanted: ExchangeSpec, there: ExchangeSpec) -> bool:
    flags = wanted.kind == there.kind, wanted.auto_delete == there.auto_delete, wanted.internal == there.internal
    return all(flags) and _same(EXCHANGE_ARGUMENTS, wanted.arguments, there.arguments)


def _same(keys: Iterable[str], wanted: dict[str, Any], there: dict[str, Any]) -> bool:
    """As the broker judges a declaration."""
    try:
        check_arguments("", "", wanted, there, keys)
    except AmqpError:
        return False
    return True


def _not_honoured(entry: QueueEntry) -> str | None:
    """Why a queue with these arguments cannot be, in the words in which a client would be told."""
    if entry.type not in (None, entry.arguments.get("x-queue-type", "classic")):
        return f"it is a {entry.type} queue, and its arguments do not say so"
    try:
        check_queue_arguments(QueueDeclare(entry.name, True, False, entry.auto_delete, entry.arguments))
    except AmqpError as error:
        return error.text
    without = unsupported_of_queue(entry.arguments)
    return f"{', '.join(without)} would have no effect here" if without else None
