"""Faults between the core and the disk: what the shell tells before it is so, and what a node trusts after a crash."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.node.io import NodeIo
from broker_plugin.node.shell import Shell
from ha.apply.replica import Replica
from ha.core import NodeCore
from ha.effects import Persist, Truncate, WriteCheckpoint
from tests.simulation.seeded.planting import replace, seeded


def _acknowledge_first(stack: ExitStack, effect: type) -> None:
    """The node sends the acknowledgement before it does what that waits for."""

    def make(original: Any) -> Any:
        def early(self: NodeIo, asked: Any) -> None:
            if isinstance(asked, effect):
                self.answers._acknowledge(asked.then)  # type: ignore[attr-defined]
            original(self, asked)

        return early

    replace(stack, NodeIo, "write", make)


@seeded("P11")
def acknowledged_before_persist(stack: ExitStack) -> None:
    _acknowledge_first(stack, Persist)


@seeded("P11")
def acknowledged_before_truncate(stack: ExitStack) -> None:
    _acknowledge_first(stack, Truncate)


@seeded("P11", first=2)
def acknowledged_before_a_checkpoint_is_durable(stack: ExitStack) -> None:
    _acknowledge_first(stack, WriteCheckpoint)


@seeded("P9", "P11", "P6", "P7", rare=True)
def ready_before_the_snapshot_is_durable(stack: ExitStack) -> None:
    """A joiner whose snapshot is whole in memory, and not on its disk yet, joins and stands as a whole node."""
    replace(stack, Replica, "whole", lambda original: property(lambda self: not self.resyncing))


@seeded("P10", first=335)
def stale_answers_of_a_primary_that_woke_up(stack: ExitStack) -> None:
    replace(stack, Shell, "look_at_clock", lambda original: lambda self: None)


@seeded("P10", first=1043)
def the_lease_counts_from_the_answer(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def on_stored(self: NodeCore, asked: Any, record: Any) -> None:
            original(self, asked, record)
            if (leading := self.leading) is not None:
                leading.keeper._lease_until = self.now + leading.keeper._lease_seconds

        return on_stored

    replace(stack, NodeCore, "on_stored", make)


@seeded("P9", "P11", "P6", "P7", rare=True)
def sessions_begin_at_0_with_each_process(stack: ExitStack) -> None:
    """What an earlier process of the same node was sent, or sent, may be taken for this one's."""

    def make(original: Any) -> Any:
        def init(self: NodeCore, *of_a_node: Any) -> None:
            original(self, *of_a_node)
            self.sessions = 0

        return init

    replace(stack, NodeCore, "__init__", make)


@seeded("error")
def an_error_that_nobody_looks_at(stack: ExitStack) -> None:
    """An answer of the coordination store is told from the thread's future; the loop's own is left alone."""

    def make(original: Any) -> Any:
        def calls(self: RecordThread, told: Any, call: Any, *arguments: Any) -> Any:
            future = self._calls.submit(call, *arguments)
            self._waiting[future] = told
            wrapped = asyncio.wrap_future(future, loop=self._guard.loop)
            self._guard.when_done(wrapped, lambda of: self._tell())
            return future

        return calls

    replace(stack, RecordThread, "_call", make)
