"""The way between a client and its node's broker, both ways: what is sent arrives in order, after a while, or never."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster, Process

LATENCY = (0.0001, 0.003)
ON_AND_ON = ("feeder", "keeper")
"""Clients that publish without waiting for confirms"""
STALLED = 0.02
STALL = (0.01, 1.0)
"""How often a client stalls that is sent something, where clients do, and for how many seconds"""


class Wire:
    """``name`` is the client's. ``served``: whether the broker takes what arrives. ``lost``: told when it is down."""

    def __init__(
        self, cluster: Cluster, process: Process, name: str, chance: random.Random, lost: Callable[[], None]
    ) -> None:
        self.served = True
        self._cluster = cluster
        self._world = cluster.world
        self._process = process
        self._name = name
        self._chance = chance
        self._lost = lost
        self._up = True
        self._there_at = self._back_at = 0.0
        self._output: list[tuple[Callable[[], None], int | None]] = []
        self._last: Callable[[bool], None] | None = None
        self._undecided = False
        self.answers_lost = False
        self.parting: Callable[[], None] | None = None
        """Told of what arrives while the last word waits"""
        self._on_the_way: list[tuple[float, list[bool]]] = []

    def to_broker(self, call: Callable[[], None], elsewhere: bool = False) -> None:
        """To the broker; ``elsewhere``: on a channel that shows nothing of what was heard on the first."""
        self._there_at = max(self._world.now + self._chance.uniform(*LATENCY), self._there_at)

        def arrive() -> None:
            if self.served:
                call()
            elif self.parting is not None and not elsewhere:
                self.parting()

        self._world.after(self._there_at - self._world.now, lambda: self._process.arrives(arrive))

    @property
    def telling(self) -> bool:
        """Whether the node is about to send what it has read: a message, a length, an outcome."""
        return self._up and any(generation is not None for _, generation in self._output)

    def forget_output(self) -> None:
        """As ``Connection.forget_output``: what has not left yet is not told, but for the last word. That says then
        that an answer may have been lost."""
        last = 1 if self._last is not None and self._output else 0
        if len(self._output) > last:
            self.answers_lost = self._undecided = True
        del self._output[: len(self._output) - last]

    def last_word(self, told: Callable[[bool], None], undecided: bool) -> None:
        """Behind all answers: the connection is closed, and whether something that has begun is undecided."""
        self._last, self._undecided = told, undecided or self.answers_lost
        self.to_client(lambda: told(self._undecided))

    def to_client(self, call: Callable[[], None], read: bool = False) -> None:
        """To the client, with all else that this turn of the loop brings for it, as ``AmqpProtocol`` does it.

        ``read``: it tells what the node held when it was asked. An acknowledgement stays true, however late it is sent.
        """
        self._output.append((call, self._process.core.generation if read else None))
        if len(self._output) == 1:
            self._process.guard.call_soon(self._flush)

    def _flush(self) -> None:
        self._process.parts.shell.look_at_clock()
        output, self._output = self._output, []
        for at, (call, generation) in enumerate(output):
            last = self._last is not None and at == len(output) - 1
            if generation is not None and self._up:  # else no client is at the other end any more
                self._cluster.truth.leaves(self._process, generation)
            self._send_back(call, last)

    def _send_back(self, call: Callable[[], None], last: bool) -> None:
        """In order. What a client reads in one go with the last word it does not look at, as libraries of clients do:
        a client that stalls reads together what came meanwhile. One that publishes on without waiting for confirms
        would send while it does not read, which those libraries do not (docs/decisions/drained-handover.md)."""
        stalls = None if self._name.startswith(ON_AND_ON) else self._cluster.stalls
        stalled = stalls.uniform(*STALL) if stalls is not None and not last and stalls.random() < STALLED else 0.0
        self._back_at = max(self._world.now + self._chance.uniform(*LATENCY) + stalled, self._back_at)
        read = [True]
        if stalls is not None:
            self._on_the_way = [each for each in self._on_the_way if each[0] >= self._world.now]
            if last:
                for at, dropped in self._on_the_way:
                    dropped[0] = at < self._back_at
            self._on_the_way.append((self._back_at, read))

        def arrive() -> None:
            if self._up and read[0]:
                call()

        self._world.after(self._back_at - self._world.now, arrive)

    def down(self) -> None:
        """The client sees that it is lost."""
        if self._up:
            self._world.say(self._name, f"has lost {self._process.name}")
            self._up = False
            self._lost()
