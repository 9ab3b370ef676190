"""Faults in what a transaction leads to."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.topology.topology import Route, Topology
from broker_plugin.embedded.transactions.transaction import LocalTransaction
from broker_plugin.embedded.transactions.unit_of_work import UnitOfWork
from ha.apply import applier
from ha.apply.applier import Applier
from tests.simulation.seeded.planting import replace, seeded
from txobserver.ends import ReplicationIds
from txobserver.events import TxDequeue, TxEnqueue
from txobserver.state.queues import Queues
from txobserver.tx_buffer import TxBuffer


@seeded("P4", first=1)
def abort_leaves_a_message(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def apply_decision(self: Applier, sequence: int, event: Any, listener: Any) -> None:
            buffer = self._buffers.open[event.tx]
            original(self, sequence, event, listener)
            if not event.commit:
                for offset, part in list(buffer.placed())[:1]:
                    if isinstance(part, TxEnqueue):
                        self.insert(offset, part, part.queues, listener)

        return apply_decision

    replace(stack, Applier, "_decision", make)
    _reapply(stack)


@seeded("P7")
def commit_forgets_what_was_acknowledged(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def placed(self: TxBuffer) -> Any:
            return (each for each in original(self) if not isinstance(each[1], TxDequeue))

        return placed

    replace(stack, TxBuffer, "placed", make)


@seeded("P1")
def a_publish_is_left_out_of_the_transaction(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def publish(self: LocalTransaction, route: Any, message: Any, mandatory: bool) -> None:
            if not message.body.endswith(b"/2"):
                original(self, route, message, mandatory)

        return publish

    replace(stack, LocalTransaction, "publish", make)


@seeded("P1")
def an_acknowledgement_is_left_out_of_the_transaction(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def settle(self: UnitOfWork, held: Any, reason: Any) -> None:
            original(self, list(held) if not self.settled else [], reason)

        return settle

    replace(stack, UnitOfWork, "settle", make)


@seeded("P1")
def a_count_tells_of_what_is_not_there(stack: ExitStack) -> None:
    replace(
        stack, DurableQueue, "ready", lambda original: property(lambda self: original.fget(self) + len(self._out) + 1)
    )


@seeded("P3")
def replication_id_without_its_generation(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def next_rid(self: ReplicationIds) -> int:
            self.given += 1
            return self.given

        return next_rid

    replace(stack, ReplicationIds, "next", make)


@seeded("P3")
def redelivery_without_the_mark(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            taken = original(self)
            return taken and (taken[0], False, taken[2])

        return take

    replace(stack, DurableQueue, "_take", make)


@seeded("P3")
def marked_as_redelivered_without_reason(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            taken = original(self)
            return taken and (taken[0], True, taken[2])

        return take

    replace(stack, DurableQueue, "_take", make)


@seeded("P3", "P7")
def marks_are_forgotten_at_a_failover(stack: ExitStack) -> None:
    replace(stack, Queues, "raise_watermark", lambda original: lambda self, queue, offset: None)


@seeded("P3")
def handed_out_before_the_mark_is_durable(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            if self._supply.window:
                self.watermark = max(self.watermark, self._supply.window[0][0])
            return original(self)

        return take

    replace(stack, DurableQueue, "_take", make)


@seeded("P5")
def a_message_goes_to_another_queue(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def route(self: Topology, exchange: str, key: str, properties: bytes) -> Route:
            return original(self, exchange, "billing" if key == "stock" else key, properties)

        return route

    replace(stack, Topology, "route", make)


@seeded("P8")
def the_last_of_the_window_goes_first(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            if len(self._supply.window) > 1 and self._supply.window[1][0] <= self.watermark:
                self._supply.window.rotate(-1)
                taken = original(self)
                self._supply.window.rotate(1)
                return taken
            return original(self)

        return take

    replace(stack, DurableQueue, "_take", make)


def _reapply(stack: ExitStack) -> None:
    """The table of what applies an event names functions: let it name the present ones."""
    table = {event: getattr(Applier, function.__name__) for event, function in applier._APPLY.items()}
    stack.enter_context(patch.object(applier, "_APPLY", table))
