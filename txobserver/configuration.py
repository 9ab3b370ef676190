"""Durable configuration: exchanges, queues, bindings, as the stream's Configure events leave it (seed 000).

Steps are idempotent, so two clients that declare the same queue at the same time agree on one queue. The ids rise
by one; a gap is an error, since it would mean that a node missed a step. Names of several parts (bindings) are
msgpack arrays inside ``arguments``.

What a step depends on (``Terms``, the ends of a binding) is judged here, where it is applied, since between its making
and its position in the stream others may have come: the stream decides, and ``Configured`` tells what it decided.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

import msgspec

from txobserver.access import ACCESS, PUT_USER, USERS_FEATURE, check_access_step
from txobserver.actions import SHIPPED, ActionRegistry
from txobserver.batch import NUMBER, READ_BYTES, READ_PARTS, is_load, parts_of
from txobserver.bindings import Bindings
from txobserver.bindings import BindingSpec as BindingSpec
from txobserver.calls import CALLS, CALLS_FEATURE, arguments_of
from txobserver.events import DECLARE_QUEUE as DECLARE_QUEUE
from txobserver.events import Configure, Terms
from txobserver.refusal import Refusal as Refusal
from txobserver.rules import SETTING_RULES
from txobserver.vhosts import local_name, vhost_of

DELETE_QUEUE = "queue.delete"
USE_QUEUE = "queue.use"
DECLARE_EXCHANGE = "exchange.declare"
DELETE_EXCHANGE = "exchange.delete"
USE_EXCHANGE = "exchange.use"
LEAVE_EXCHANGE = "exchange.leave"
BIND = "bind"
UNBIND = "unbind"

OPERATIONS = frozenset(
    {
        *(DECLARE_QUEUE, DELETE_QUEUE, USE_QUEUE),
        *(DECLARE_EXCHANGE, DELETE_EXCHANGE, USE_EXCHANGE, LEAVE_EXCHANGE),
        *(BIND, UNBIND),
        *CALLS,
        *ACCESS,
        NUMBER,
    }
)
"""Every operation that this version of txha can apply."""
FEATURE_OF: dict[str, str] = {
    **dict.fromkeys(sorted(CALLS), CALLS_FEATURE),
    **dict.fromkeys(sorted(ACCESS), USERS_FEATURE),
    NUMBER: USERS_FEATURE,
}
"""Operations that are younger than the oldest version of the peer protocol that is spoken, with the feature (see
``ha.messages.greeting``) that a node names which knows them. The primary writes none before every node that follows it
names that feature."""

PREDECLARED = "amq."
"""Exchanges whose names begin so are always there; clients cannot declare them, and no step names them."""


PARTS = frozenset({PUT_USER, *SETTING_RULES, DECLARE_EXCHANGE, DECLARE_QUEUE, BIND})
"""What can be a part of a step with parts: what adds, and takes nothing away."""


class UnknownStep(ValueError):
    """A step of configuration that this version of txha cannot apply."""


class Configured(NamedTuple):
    """What a step led to. ``deleted``: the number of the queue that went; ``lapsed``: the auto-delete exchanges that
    went with their last binding; ``parts``: the steps within one that has been carried out as a whole."""

    deleted: int | None = None
    lapsed: tuple[str, ...] = ()
    refusal: Refusal | None = None
    parts: tuple[Configure, ...] = ()


class QueueSpec(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A durable queue. ``number`` is the config_id of its declaration and names it in every event.

    ``used``: an auto-delete queue that has had a consumer; it goes when it has none, also with a primary that ends.
    """

    number: int
    name: str
    auto_delete: bool
    arguments: dict[str, Any]
    used: bool = False


class ExchangeSpec(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A durable exchange that a client declared; the predeclared ones are not listed.

    ``used``: an auto-delete exchange with bindings to what is not durable. Those end with their primary.
    """

    name: str
    kind: str
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any]
    used: bool = False


QueueArguments = tuple[bool, dict[str, Any]]
_ARGUMENTS: dict[str, Any] = {
    DECLARE_QUEUE: QueueArguments,
    DECLARE_EXCHANGE: ExchangeSpec,
    BIND: BindingSpec,
    UNBIND: BindingSpec,
    **{operation: arguments_of(operation) for operation in CALLS},
}
"""What stands in the arguments of a step; of other operations nothing does."""


def queue_step(name: str, auto_delete: bool, arguments: dict[str, Any]) -> Configure:
    """The step that declares a queue. The config_id is given by the stream."""
    return Configure(0, DECLARE_QUEUE, name, msgspec.msgpack.encode((auto_delete, arguments)))


def exchange_step(spec: ExchangeSpec) -> Configure:
    """The step that declares an exchange."""
    return Configure(0, DECLARE_EXCHANGE, spec.name, msgspec.msgpack.encode(spec))


def binding_step(spec: BindingSpec, bind: bool = True) -> Configure:
    """The step that adds or removes a binding."""
    arguments = msgspec.msgpack.encode(spec)
    return Configure(0, BIND if bind else UNBIND, spec.source, arguments, None if bind else Terms())


def delete_queue_step(name: str, terms: Terms | None = None) -> Configure:
    """The step that deletes a queue, its messages and its bindings."""
    return Configure(0, DELETE_QUEUE, name, b"", terms or Terms())


def delete_exchange_step(name: str, unused: bool = False) -> Configure:
    """The step that deletes an exchange and the bindings from and to it; ``unused``: only if there are none from it."""
    return Configure(0, DELETE_EXCHANGE, name, b"", Terms(unused=unused))


def use_queue_step(name: str) -> Configure:
    """An auto-delete queue is about to have its first consumer."""
    return Configure(0, USE_QUEUE, name, b"")


def use_exchange_step(name: str) -> Configure:
    """An auto-delete exchange is about to have its first binding to what is not durable."""
    return Configure(0, USE_EXCHANGE, name, b"")


def leave_exchange_step(name: str) -> Configure:
    """The last binding to what is not durable has gone."""
    return Configure(0, LEAVE_EXCHANGE, name, b"", Terms())


def check_step(step: Configure, operations: Container[str] = OPERATIONS, actions: ActionRegistry = SHIPPED) -> None:
    """Whether a node that knows these operations and actions can apply a step: to be asked before it is persisted.

    Raises UnknownStep.
    """
    if step.operation not in operations:
        raise UnknownStep(f"unknown configuration step {step.operation!r}")
    kind = _ARGUMENTS.get(step.operation)
    try:
        if kind is not None:
            msgspec.msgpack.decode(step.arguments, type=kind)
        if step.operation in ACCESS:
            check_access_step(step)
            if is_load(step):
                _check_parts(step)
        refusal = actions.refusal_of(step) if step.operation in CALLS else None
    except (ValueError, RecursionError) as error:
        raise UnknownStep(f"configuration step {step.operation!r} with unknown arguments: {error}") from None
    if refusal is not None:
        raise UnknownStep(f"cluster call: {refusal}")


def _check_parts(step: Configure) -> None:
    """Raises ValueError."""
    parts = parts_of(step)
    if len(parts) > READ_PARTS or len(step.arguments) > READ_BYTES:
        raise ValueError(f"{len(parts)} parts of {len(step.arguments)} bytes; {READ_PARTS} and {READ_BYTES} may be")
    for part in parts:
        if part.operation not in PARTS:
            raise ValueError(f"no part of it is a {part.operation!r}")
        check_step(part)


Holds = Callable[[int, Terms], bool]
"""Whether a queue holds messages at other offsets than these."""


class Configuration(msgspec.Struct):
    """Everything durable that clients declared, and the durable cursor ``last_id`` of the steps applied."""

    last_id: int = 0
    queues: dict[str, QueueSpec] = {}
    exchanges: dict[str, ExchangeSpec] = {}
    bindings: Bindings = msgspec.field(default_factory=Bindings)

    def queue_number(self, name: str) -> int | None:
        """The number of this durable queue, or None."""
        spec = self.queues.get(name)
        return spec.number if spec else None

    def is_vacant(self, vhost: str) -> bool:
        """Whether nothing durable is declared in a virtual host, and nothing is bound there."""
        tables = (self.queues, self.exchanges, self.bindings.sources())
        return not any(vhost_of(name) == vhost for names in tables for name in names)

    def numbers(self) -> set[int]:
        """The numbers of all durable queues."""
        return {spec.number for spec in self.queues.values()}

    def copy(self) -> Configuration:
        """The same configuration, independent of this one."""
        return Configuration(self.last_id, dict(self.queues), dict(self.exchanges), self.bindings.copy())

    def apply(self, step: Configure, holds: Holds = lambda queue, terms: False) -> Configured:
        """Carry out one step, if what it depends on is so; returns what became of it.

        Raises ValueError for a gap in the ids, UnknownStep.
        """
        if step.config_id != self.last_id + 1:
            raise ValueError(f"configuration step {step.config_id} came after {self.last_id}")
        self.last_id = step.config_id
        return self.carry_out(step, holds)

    def carry_out(self, step: Configure, holds: Holds = lambda queue, terms: False) -> Configured:
        """The same for a step within another, which has no place of its own among the ids. Raises UnknownStep."""
        if step.operation == DECLARE_QUEUE:
            return self._declare_queue(step)
        if step.operation == DELETE_QUEUE:
            return self._delete_queue(step, holds)
        if step.operation == DECLARE_EXCHANGE:
            self.exchanges.setdefault(step.name, msgspec.msgpack.decode(step.arguments, type=ExchangeSpec))
            return Configured()
        if step.operation == DELETE_EXCHANGE:
            return self._delete_exchange(step)
        if step.operation in (BIND, UNBIND):
            return self._bind(step, msgspec.msgpack.decode(step.arguments, type=BindingSpec))
        if step.operation in (USE_QUEUE, USE_EXCHANGE, LEAVE_EXCHANGE):
            return self._use(step)
        if step.operation in CALLS or step.operation in ACCESS or step.operation == NUMBER:
            return Configured()  # see ``txobserver.calls``, ``txobserver.access``
        raise UnknownStep(f"unknown configuration step {step.operation!r}")

    def _declare_queue(self, step: Configure) -> Configured:
        auto_delete, arguments = msgspec.msgpack.decode(step.arguments, type=QueueArguments)
        if step.name not in self.queues:
            self.queues[step.name] = QueueSpec(step.config_id, step.name, auto_delete, arguments)
        return Configured()

    def _delete_queue(self, step: Configure, holds: Holds) -> Configured:
        name, terms = step.name, step.terms
        spec = self.queues.get(name)
        if spec is not None and terms is not None and terms.empty and holds(spec.number, terms):
            return Configured(refusal=Refusal.NOT_EMPTY)
        self.queues.pop(name, None)
        lost = self.bindings.remove_to(True, name)
        return Configured(spec.number if spec else None, self._lapse(step, lost))

    def _delete_exchange(self, step: Configure) -> Configured:
        if step.terms is not None and step.terms.unused and self._in_use(step.name):
            return Configured(refusal=Refusal.IN_USE)
        return Configured(lapsed=self._lapse(step, self._remove_exchange(step.name)))

    def _use(self, step: Configure) -> Configured:
        """Something that the stream does not hold uses a queue or an exchange, or has left it."""
        specs: dict[str, Any] = self.queues if step.operation == USE_QUEUE else self.exchanges
        if step.name not in specs:
            return Configured(refusal=Refusal.GONE)
        used = step.operation != LEAVE_EXCHANGE
        specs[step.name] = msgspec.structs.replace(specs[step.name], used=used)
        return Configured(lapsed=() if used else self._lapse(step, [step.name]))

    def _in_use(self, exchange: str) -> bool:
        spec = self.exchanges.get(exchange)
        return spec is not None and (spec.used or self.bindings.leads_from(exchange))

    def _lapse(self, step: Configure, sources: Iterable[str]) -> tuple[str, ...]:
        """These exchanges have lost a binding. Auto-delete ones that are used no more go, and so on upwards."""
        gone: list[str] = []
        todo = list(sources) if step.terms is not None else []
        while todo:
            spec = self.exchanges.get(todo.pop())
            if spec is not None and spec.auto_delete and not self._in_use(spec.name):
                gone.append(spec.name)
                todo += self._remove_exchange(spec.name)
        return tuple(gone)

    def _remove_exchange(self, name: str) -> list[str]:
        """An exchange and its bindings go; returns the sources that lost one."""
        self.exchanges.pop(name, None)
        self.bindings.remove_from(name)
        return self.bindings.remove_to(False, name)

    def _bind(self, step: Configure, spec: BindingSpec) -> Configured:
        known, bind = spec in self.bindings, step.operation == BIND
        if bind and not known:
            if (missing := self._missing(spec)) is not None:
                return Configured(refusal=missing)
            self.bindings.append(spec)
        elif known and not bind:
            self.bindings.remove(spec)
            return Configured(lapsed=self._lapse(step, [spec.source]))
        return Configured()

    def _missing(self, spec: BindingSpec) -> Refusal | None:
        """Which end of a binding is not there: it may have been deleted while the binding was on its way."""
        if not self._has_exchange(spec.source):
            return Refusal.NO_SOURCE
        there = spec.destination in self.queues if spec.to_queue else self._has_exchange(spec.destination)
        return None if there else Refusal.NO_DESTINATION

    def _has_exchange(self, name: str) -> bool:
        return name in self.exchanges or local_name(name).startswith(PREDECLARED)
