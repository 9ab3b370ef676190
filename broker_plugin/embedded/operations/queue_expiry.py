"""Queues that go by themselves when they have not been used for a while (``x-expires``, and ``expires`` of policies).

Promise: a queue goes only after it has been unused, as this primary saw it, for all of the time that holds of it now.
It is used while consumers are there and while clients or branches hold messages of it, and each time it is declared,
looked at by a passive declaration, or asked for a message by basic.get; RabbitMQ counts the same, but for what is held.
When it goes is not promised: all queues that may expire are looked at once in each tick, unless there are too many.

The stream knows of none of this but the deletion, which is a step like any other. So a new primary, and a change of the
time that holds, count from the beginning: a queue then goes later, and never sooner.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import NamedTuple

from broker_plugin.embedded.operations.queue_deletions import QueueDeletions
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.turn import LOOKS_A_STEP, in_pieces
from broker_plugin.embedded.serving import Serving, nothing
from broker_plugin.embedded.topology.topology import EXPIRES

LONGEST_TICK = 2.0
"""Seconds that count at most between two ticks: while a node stands still, its clients cannot use their queues."""


class Idle(NamedTuple):
    """A queue that may expire. ``since``: the time of the tick behind the look that has seen its last use; None until
    that tick. ``expiry``: the milliseconds that hold."""

    since: float | None
    expiry: int


class QueueExpiry:
    """Of the active primary."""

    def __init__(self, broker: Serving, deletions: QueueDeletions) -> None:
        self._broker = broker
        self._deletions = deletions
        self._names: deque[str] = deque()
        self._idle: dict[str, Idle] = {}
        self._seen: dict[str, Idle] = {}
        """Of those that this pass has come to"""
        self._waiting: set[Queue] = set()
        """Whose time is up, and whose names other operations hold"""
        self._clock = 0.0
        self._ticked_at: float | None = None

    def tick(self, now: float) -> None:
        """It is ``now``, in seconds: look at all queues that may expire, if those of the last pass are all done."""
        if self._ticked_at is not None:
            self._clock += min(now - self._ticked_at, LONGEST_TICK)
        self._ticked_at = now
        broker = self._broker
        if not self._names and broker.active and not broker.loading:
            topology = broker.topology
            self._idle, self._seen = self._seen, {}
            self._names.extend(topology.queues if broker.policies.let_expire() else topology.expiring)
            if self._names:
                broker.turn.later(partial(in_pieces, broker.turn, self._names, self._look_at_some, nothing))

    def take_over(self) -> None:
        """This node becomes active: its queues are new ones, which count as declared just now."""
        self._waiting.clear()

    def _look_at_some(self) -> None:
        """As many as are one step of a turn; fewer where a name is compared with more policies than that."""
        policies, before = self._broker.policies, self._broker.policies.compared
        for _ in range(min(LOOKS_A_STEP, len(self._names))):
            queue = self._broker.topology.queues.get(self._names.popleft())
            if queue is not None:
                self._look_at(queue)
            if policies.compared - before > LOOKS_A_STEP:
                self._broker.turn.looked_at(policies.compared - before)
                return

    def _look_at(self, queue: Queue) -> None:
        expiry = self._expiry_of(queue)
        used, queue.touched = queue.touched or queue.in_use, queue.in_use  # when that ends, it was just used
        if expiry is None:
            return
        there = self._idle.get(queue.name)
        if used or there is None or there.expiry != expiry:
            there = Idle(None, expiry)
        elif there.since is None:
            there = Idle(self._clock, expiry)
        self._seen[queue.name] = there
        if there.since is not None and (self._clock - there.since) * 1000 >= expiry and queue not in self._waiting:
            self._waiting.add(queue)
            self._broker.locks.run(("queue", queue.name), partial(self._expire, queue))

    def _expire(self, queue: Queue) -> None:
        self._waiting.discard(queue)
        if not queue.touched:
            self._deletions.delete_unused(queue)

    def _expiry_of(self, queue: Queue) -> int | None:
        """The smallest of what the declaration, a policy and an operator policy say."""
        given, said = queue.arguments.get(EXPIRES), self._broker.policies.expiry_of(queue.name)
        return min((each for each in (given, said) if isinstance(each, int)), default=None)
