"""Durable configuration: exchanges, queues, bindings, as the stream's Configure events leave it (seed 000).

Steps are idempotent, so two clients that declare the same queue at the same time agree on one queue. The ids rise
by one; a gap is an error, since it would mean that a node missed a step. Names of several parts (bindings) are
msgpack arrays inside ``arguments``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from txobserver.events import Configure

DECLARE_QUEUE = "queue.declare"
DELETE_QUEUE = "queue.delete"
DECLARE_EXCHANGE = "exchange.declare"
DELETE_EXCHANGE = "exchange.delete"
BIND = "bind"
UNBIND = "unbind"

PREDECLARED = "amq."
"""Exchanges whose names begin so are always there; clients cannot declare them, and no step names them."""


class QueueSpec(msgspec.Struct, array_like=True):
    """A durable queue. ``number`` is the config_id of its declaration and names it in every event."""

    number: int
    name: str
    auto_delete: bool
    arguments: dict[str, Any]


class ExchangeSpec(msgspec.Struct, array_like=True):
    """A durable exchange that a client declared; the predeclared ones are not listed."""

    name: str
    kind: str
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any]


class BindingSpec(msgspec.Struct, array_like=True):
    """A binding from ``source`` to a queue (``to_queue``) or to another exchange."""

    source: str
    destination: str
    to_queue: bool
    routing_key: str
    arguments: dict[str, Any]


_encode = msgspec.msgpack.Encoder(order="sorted").encode
"""Tells apart what Python's equality does not: {"a": 1} and {"a": True} are two bindings."""


def queue_step(name: str, auto_delete: bool, arguments: dict[str, Any]) -> Configure:
    """The step that declares a queue. The config_id is given by the stream."""
    return Configure(0, DECLARE_QUEUE, name, msgspec.msgpack.encode((auto_delete, arguments)))


def exchange_step(spec: ExchangeSpec) -> Configure:
    """The step that declares an exchange."""
    return Configure(0, DECLARE_EXCHANGE, spec.name, msgspec.msgpack.encode(spec))


def binding_step(spec: BindingSpec, bind: bool = True) -> Configure:
    """The step that adds or removes a binding."""
    return Configure(0, BIND if bind else UNBIND, spec.source, msgspec.msgpack.encode(spec))


def delete_queue_step(name: str) -> Configure:
    """The step that deletes a queue, its messages and its bindings."""
    return Configure(0, DELETE_QUEUE, name, b"")


def delete_exchange_step(name: str) -> Configure:
    """The step that deletes an exchange and the bindings from and to it."""
    return Configure(0, DELETE_EXCHANGE, name, b"")


class Configuration(msgspec.Struct, dict=True):
    """Everything durable that clients declared, and the durable cursor ``last_id`` of the steps applied.

    What is stored and sent are the fields. Beside them stands an index of the bindings, so that one binding more
    costs the same however many there are.
    """

    last_id: int = 0
    queues: dict[str, QueueSpec] = {}
    exchanges: dict[str, ExchangeSpec] = {}
    bindings: list[BindingSpec] = []

    def __post_init__(self) -> None:
        self._known: set[bytes] | None = None

    def queue_number(self, name: str) -> int | None:
        """The number of this durable queue, or None."""
        spec = self.queues.get(name)
        return spec.number if spec else None

    def numbers(self) -> set[int]:
        """The numbers of all durable queues."""
        return {spec.number for spec in self.queues.values()}

    def copy(self) -> Configuration:
        """The same configuration, independent of this one."""
        return Configuration(self.last_id, dict(self.queues), dict(self.exchanges), list(self.bindings))

    def apply(self, step: Configure) -> int | None:
        """Carry out one step; returns the number of the queue that it deleted, if it deleted one.

        Raises ValueError for a gap in the ids or an unknown operation.
        """
        if step.config_id != self.last_id + 1:
            raise ValueError(f"configuration step {step.config_id} came after {self.last_id}")
        self.last_id = step.config_id
        if step.operation == DECLARE_QUEUE:
            self._declare_queue(step)
        elif step.operation == DELETE_QUEUE:
            return self._delete_queue(step.name)
        elif step.operation == DECLARE_EXCHANGE:
            self.exchanges.setdefault(step.name, msgspec.msgpack.decode(step.arguments, type=ExchangeSpec))
        elif step.operation == DELETE_EXCHANGE:
            self._delete_exchange(step.name)
        elif step.operation in (BIND, UNBIND):
            self._bind(msgspec.msgpack.decode(step.arguments, type=BindingSpec), step.operation == BIND)
        else:
            raise ValueError(f"unknown configuration step {step.operation!r}")
        return None

    def _declare_queue(self, step: Configure) -> None:
        auto_delete, arguments = msgspec.msgpack.decode(step.arguments, type=tuple[bool, dict[str, Any]])
        if step.name not in self.queues:
            self.queues[step.name] = QueueSpec(step.config_id, step.name, auto_delete, arguments)

    def _delete_queue(self, name: str) -> int | None:
        spec = self.queues.pop(name, None)
        self._keep([b for b in self.bindings if not (b.to_queue and b.destination == name)])
        return spec.number if spec else None

    def _delete_exchange(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self._keep([b for b in self.bindings if b.source != name and (b.to_queue or b.destination != name)])

    def _bind(self, spec: BindingSpec, bind: bool) -> None:
        if self._known is None:
            self._known = {_encode(each) for each in self.bindings}
        key = _encode(spec)
        if bind and key not in self._known and self._has_ends(spec):
            self.bindings.append(spec)
            self._known.add(key)
        elif not bind and key in self._known:
            self._keep([each for each in self.bindings if each != spec or _encode(each) != key])

    def _keep(self, bindings: list[BindingSpec]) -> None:
        """Only these are left."""
        if len(bindings) != len(self.bindings):
            self.bindings = bindings
            self._known = None

    def _has_ends(self, spec: BindingSpec) -> bool:
        """Whether both ends are there: one may have been deleted while the binding was on its way."""
        ends = (spec.source,) if spec.to_queue else (spec.source, spec.destination)
        exchanges = all(name in self.exchanges or name.startswith(PREDECLARED) for name in ends)
        return exchanges and (not spec.to_queue or spec.destination in self.queues)
