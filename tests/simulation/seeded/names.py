"""Faults in who judges what a deletion depends on, and where."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from broker_plugin.embedded.operations.exchange_operations import ExchangeOperations
from broker_plugin.embedded.operations.queue_deletions import QueueDeletions
from ha.primary.client_ledger import ClientLedger
from tests.simulation.seeded.planting import replace, seeded
from txobserver.configuration import UNBIND, delete_exchange_step
from txobserver.events import Configure, Terms


@seeded("P2")
def if_empty_judged_when_it_is_asked(stack: ExitStack) -> None:
    """And carried out, whatever has come by then."""

    def make(original: Any) -> Any:
        def delete_durable(self: QueueDeletions, queue: Any, terms: Terms, told: Any) -> None:
            original(self, queue, Terms(), told)

        return delete_durable

    replace(stack, QueueDeletions, "_delete_durable", make)


@seeded("P2")
def auto_delete_exchange_goes_by_a_later_step(stack: ExitStack) -> None:
    """Without a condition, whichever client binds to it meanwhile."""

    def make_configure(original: Any) -> Any:
        def configure(self: ClientLedger, step: Configure, done: Any) -> None:
            if step.operation == UNBIND:
                step = msgspec.structs.replace(step, terms=None)
            original(self, step, done)

        return configure

    def make_lost(original: Any) -> Any:
        def lost_bindings(self: ExchangeOperations, sources: Any, left: Any = None) -> None:
            topology = self._broker.topology
            for name in sources:
                there = topology.exchanges.get(name)
                if there is not None and there.auto_delete and not topology.bindings_from(name):
                    self._broker.ledger.configure(delete_exchange_step(name), lambda error: None)

        return lost_bindings

    replace(stack, ClientLedger, "configure", make_configure)
    replace(stack, ExchangeOperations, "lost_bindings", make_lost)
