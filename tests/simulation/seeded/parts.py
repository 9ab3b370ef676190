"""Faults in how a decision is applied in parts, and in what is let go of: half of it is seen, kept or lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from broker_plugin.embedded.broker import EmbeddedBroker
from ha.apply.applier import Applier, EventParts
from ha.apply.checkpointing import Checkpointing
from ha.apply.replica import Replica
from tests.simulation.seeded.planting import replace, seeded
from txobserver.state.contents import Contents
from txobserver.state.queues import Queues


@seeded("P1", "P8", first=12)
def consumers_see_half_a_decision(stack: ExitStack) -> None:
    """What comes of a transaction is handed out and counted at once."""
    replace(stack, EmbeddedBroker, "on_step_begins", lambda original: lambda self: None)


@seeded("P7", first=1)
def half_a_decision_is_counted(stack: ExitStack) -> None:
    """A node that stands before the decision counts some of what it brings."""
    replace(stack, Queues, "begin_step", lambda original: lambda self: None)


@seeded("P1", first=3)
def lengths_tell_half_a_decision(stack: ExitStack) -> None:
    """Nothing of it is handed out before its end, and what has come is counted for clients that ask."""

    def make(original: Any) -> Any:
        def fill(self: EmbeddedBroker, filling: dict[Any, int], queue: Any) -> None:
            if queue not in filling:
                filling[queue] = 0
                queue.begin_return()

        return fill

    replace(stack, EmbeddedBroker, "_fill", make)


@contextmanager
def _as_if_whole(replica: Replica) -> Iterator[None]:
    """The replica does not know that it is in the middle of a decision."""
    parts, replica._parts = replica._parts, None
    queues = replica.contents.queues
    in_step, queues._in_step = queues._in_step, False
    try:
        yield
    finally:
        replica._parts, queues._in_step = parts, in_step


@seeded("P7", first=32)
def a_checkpoint_holds_half_a_decision(stack: ExitStack) -> None:
    """A node that is started from it applies the other half again, or both."""

    def make(original: Any) -> Any:
        def checkpoint(self: Replica) -> Any:
            with _as_if_whole(self):
                return original(self)

        return checkpoint

    replace(stack, Checkpointing, "_waits", lambda original: lambda self: False)
    replace(stack, Replica, "checkpoint", make)


@seeded("P1", "P7", first=1)
def a_transaction_is_let_go_of_before_its_end(stack: ExitStack) -> None:
    """What has not been applied of it by the end of the turn is gone."""

    def make(original: Any) -> Any:
        def begin_parts(self: Applier, sequence: int, event: Any, listener: Any) -> EventParts:
            parts: EventParts = original(self, sequence, event, listener)
            if hasattr(event, "tx"):
                self._buffers.open[event.tx].give_away(self._contents.leftovers)
            return parts

        return begin_parts

    replace(stack, Applier, "begin_parts", make)


@seeded("P2", "P7", "P11", first=1)
def a_layer_is_let_go_of_before_it_is_written(stack: ExitStack) -> None:
    """What a checkpoint should write is gone before it does."""

    def make(original: Any) -> Any:
        def freeze(self: Contents) -> Any:
            changes, dropped = original(self)
            for layer in changes.values():
                self.leftovers.add(layer)
            return changes, dropped

        return freeze

    replace(stack, Contents, "freeze", make)
