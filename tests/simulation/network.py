"""The network between nodes: every node dials every other, and sends on the connection that it dialled.

What goes over one connection arrives in order, each message after a time of its own; connections are late by different
amounts, so messages of different connections overtake each other. A connection ends with its ends, or by a reset;
a cut direction either loses it or only holds everything up, as a network does that drops packets for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ha.wire import encode
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.process import Process

DIAL = (0.02, 0.08)
LATENCY = (0.0001, 0.002)


class Connection:
    """From ``source``, which dialled it, to ``target``."""

    def __init__(self, source: Process, target: Process) -> None:
        self.source = source
        self.target = target
        self.up = True
        self.last_arrival = 0.0
        self.held: list[bytes] = []


class Network:
    """All connections. ``find`` gives the running process of a name."""

    def __init__(self, world: World, names: list[str], find: Callable[[str], Process | None]) -> None:
        self.loss = 0.0
        self.slowness = 1.0
        self._world = world
        self._chance = world.chance("network")
        self._find = find
        self._cut: set[tuple[str, str]] = set()
        self._stalled: set[tuple[str, str]] = set()
        self._connections: dict[tuple[str, str], Connection] = {}
        self._names = names

    def send(self, source: Process, target: str, message: object) -> None:
        """Send, if there is a connection; else the message is lost."""
        connection = self._connections.get((source.name, target))
        if connection is None or connection.source is not source or not connection.up:
            return
        if self.loss and self._chance.random() < self.loss:
            self.reset(source.name, target)
            return
        data = encode(message)
        if (source.name, target) in self._stalled:
            connection.held.append(data)
        else:
            self._deliver(connection, data)

    def _deliver(self, connection: Connection, data: bytes) -> None:
        latency = self._chance.uniform(*LATENCY) * self.slowness
        arrival = connection.last_arrival = max(self._world.now + latency, connection.last_arrival)

        def arrive() -> None:
            if connection.up and connection.target.alive:
                connection.target.on_message(connection.source.name, data)

        self._world.after(arrival - self._world.now, arrive)

    def _dial(self, source: str, target: str) -> None:
        """Try to connect; a node that is down comes back by itself and dials then."""
        one, other = self._find(source), self._find(target)
        if (source, target) in self._connections or one is None:
            return
        if other is None or one.paused or other.paused or not self._reachable(source, target):
            self._dial_later(source, target)
            return
        self._connections[source, target] = Connection(one, other)
        one.on_link(target, True)

    def _dial_later(self, source: str, target: str) -> None:
        self._world.after(self._chance.uniform(*DIAL), lambda: self._dial(source, target))

    def process_started(self, name: str) -> None:
        """It dials every other node."""
        for target in self._names:
            if target != name:
                self._dial_later(name, target)

    def _reachable(self, source: str, target: str) -> bool:
        """Both directions carry packets."""
        blocked = self._cut | self._stalled
        return (source, target) not in blocked and (target, source) not in blocked

    # -- what breaks

    def reset(self, source: str, target: str) -> None:
        """One connection ends; what is under way on it is lost."""
        connection = self._connections.pop((source, target), None)
        if connection is not None:
            connection.up = False
            if connection.source.alive:
                connection.source.on_link(target, False)
                self._dial_later(source, target)

    def process_ended(self, process: Process, chance_to_arrive: float = 0.5) -> None:
        """Its connections end. What it had sent may still arrive."""
        for source, target in list(self._connections):
            connection = self._connections[source, target]
            if connection.source is process:
                del self._connections[source, target]
                connection.up = self._chance.random() < chance_to_arrive
            elif connection.target is process:
                self.reset(source, target)

    def cut(self, source: str, target: str, stall: bool) -> None:
        """Packets from ``source`` to ``target`` are dropped: for long (reset), or so that all is held up (stall)."""
        if stall:
            self._stalled.add((source, target))
        else:
            self._cut.add((source, target))
            self.reset(source, target)
            self.reset(target, source)

    def heal(self, pairs: list[tuple[str, str]]) -> None:
        """These directions carry packets again; what was held up is on its way."""
        for pair in pairs:
            self._cut.discard(pair)
            if pair in self._stalled:
                self._stalled.discard(pair)
                connection = self._connections.get(pair)
                if connection is not None:
                    held, connection.held = connection.held, []
                    for data in held:
                        self._deliver(connection, data)
