"""Brings the topology in line with the durable configuration: what was there at the start, and step by step.

The rules are those of ``txobserver.configuration``: a step that says what is there already changes nothing, and a
binding whose queue is gone is not made.
"""

from __future__ import annotations

import msgspec

from broker_plugin.embedded.operations.operations import Operations
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.windows import WindowLimits, Windows
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.topology.exchange import Exchange, predeclared
from broker_plugin.embedded.topology.routers import Destination
from broker_plugin.embedded.topology.topology import Binding, binding
from txobserver.configuration import (
    BIND,
    DECLARE_EXCHANGE,
    DECLARE_QUEUE,
    DELETE_EXCHANGE,
    DELETE_QUEUE,
    LEAVE_EXCHANGE,
    UNBIND,
    BindingSpec,
    Configured,
    ExchangeSpec,
    QueueSpec,
)
from txobserver.events import Configure
from txobserver.ports.ledger import Content, Ledger


class Replicated:
    """The durable part of one broker's topology."""

    def __init__(
        self, broker: Serving, operations: Operations, ledger: Ledger, content: Content, limits: WindowLimits
    ) -> None:
        self._broker = broker
        self._operations = operations
        self._topology = broker.topology
        self._ledger = ledger
        self._content = content
        self._windows = Windows(limits)

    def load_exchange(self, name: str) -> None:
        """An exchange that was there when this node became active, if it is there still."""
        if (spec := self._content.configuration.exchanges.get(name)) is not None:
            self._add_exchange(spec)

    def load_queue(self, name: str) -> None:
        """The same for a queue."""
        if (spec := self._content.configuration.queues.get(name)) is not None:
            self._add_queue(spec)

    def load_binding(self, spec: BindingSpec) -> None:
        """The same for a binding."""
        if spec in self._content.configuration.bindings:
            self._topology.bind(_binding(spec))

    def add_vhost(self, vhost: str) -> None:
        """A virtual host has come, with its predeclared exchanges."""
        for exchange in predeclared(vhost).values():
            if exchange.name not in self._topology.exchanges:
                self._topology.add_exchange(exchange)

    def apply(self, step: Configure, done: Configured) -> None:
        """One step that has been applied to the configuration, and what became of it."""
        if done.refusal is None:
            self._carry_out(step)
        for exchange in done.lapsed:
            self._drop_exchange(exchange, step.name if step.operation == LEAVE_EXCHANGE else None)

    def _carry_out(self, step: Configure) -> None:
        configuration = self._content.configuration
        if step.operation == DECLARE_QUEUE:
            self._add_queue(configuration.queues[step.name])
        elif step.operation == DELETE_QUEUE:
            self._drop_queue(step)
        elif step.operation == DECLARE_EXCHANGE:
            self._add_exchange(configuration.exchanges[step.name])
        elif step.operation == DELETE_EXCHANGE:
            self._drop_exchange(step.name)
        elif step.operation in (BIND, UNBIND):
            self._bind(_binding(msgspec.msgpack.decode(step.arguments, type=BindingSpec)), step.operation == BIND)

    def _add_queue(self, spec: QueueSpec) -> None:
        there = self._topology.queues.get(spec.name)
        if there is not None and there.number == spec.number:
            return
        if isinstance(there, LocalQueue):
            self._operations.deletions.drop_local(there)
        queue = DurableQueue(spec, self._broker.turn, self._ledger, self._content, self._windows)
        self._broker.numbered[spec.number] = queue
        self._topology.add_queue(queue)

    def _drop_queue(self, step: Configure) -> None:
        """What came back to an empty queue behind the deletion is not counted: it came too late to keep the queue."""
        queue = self._topology.queues.get(step.name)
        if isinstance(queue, DurableQueue):
            queue.removed_count = 0 if step.terms is not None and step.terms.empty else queue.ready
            del self._broker.numbered[queue.number]
            self._operations.deletions.forget(queue)

    def _add_exchange(self, spec: ExchangeSpec) -> None:
        there = self._topology.exchanges.get(spec.name)
        if there is not None and there.durable:
            return
        if there is not None:
            self._operations.exchanges.lost_bindings(self._topology.remove_exchange(spec.name))
        self._topology.add_exchange(
            Exchange(spec.name, spec.kind, True, spec.auto_delete, spec.internal, spec.arguments)
        )

    def _drop_exchange(self, name: str, left: str | None = None) -> None:
        exchange = self._topology.exchanges.get(name)
        if exchange is not None and exchange.durable:
            self._operations.exchanges.lost_bindings(self._topology.remove_exchange(name), left)

    def _bind(self, each: Binding, bind: bool) -> None:
        if bind:
            self._topology.bind(each)
        elif self._topology.unbind(each):
            self._operations.exchanges.lost_bindings([each.source])


def _binding(spec: BindingSpec) -> Binding:
    return binding(spec.source, Destination(spec.to_queue, spec.destination), spec.routing_key, spec.arguments)
