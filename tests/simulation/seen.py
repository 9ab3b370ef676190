"""What the simulation's parts know of each other that hold each other: a process its cluster, a checker the truth.

The parts themselves are made by the cluster, which imports all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.guard import Guard
from ha.core import NodeCore
from ha.messages.greeting import Hello
from ha.settings import Settings
from tests.simulation.book import Book
from tests.simulation.coordination import SimCoordination
from tests.simulation.disk import Disk
from tests.simulation.loop import MachineClock, SimLoop
from tests.simulation.losses import Losses
from tests.simulation.network import Network
from tests.simulation.reference import Reference
from tests.simulation.releases import Release
from tests.simulation.world import World
from txobserver.events import Configure
from txobserver.ids import Position


class Cluster(Protocol):
    """Nodes, the disks that they run on, and all around them."""

    name: str
    world: World
    settings: Settings
    starts: int
    retention: float
    book: Book
    truth: Any
    links: list[Any]
    disks: dict[str, Disk]
    processes: Any
    releases: dict[str, Release]
    trouble: bool
    stalls: random.Random | None
    network: Network
    coordination: SimCoordination

    def running(self) -> list[Any]:
        """The processes that run."""
        ...

    def serving(self, chance: random.Random) -> Any:
        """A process that serves, if there is one."""
        ...

    def ended(self, process: Any) -> None:
        """This process has ended."""


class Process(Protocol):
    """One process of a node."""

    name: str
    core: NodeCore
    broker: EmbeddedBroker
    disk: Disk
    clock: MachineClock
    guard: Guard
    cluster: Cluster
    world: World
    loop: SimLoop
    release: Release
    greeting: Hello

    def arrives(self, call: Callable[[], None]) -> None:
        """Something has come over the network."""

    def end(self) -> None:
        """The process is gone."""

    def asked_for(self, session: int) -> bool:
        """Whether this attachment is one of this process, and of none before."""
        ...

    def unknown_steps(self) -> list[tuple[int, Configure]]:
        """What of its log is not applied yet, and cannot be by this release."""
        ...


class Client(Protocol):
    """Who has a connection to a broker."""

    name: str

    def lost(self, link: Any) -> None:
        """The connection is gone."""

    def delivered(self, tag: int, queue: str, body: str) -> None:
        """A message has come."""

    def confirmed(self, tag: int, multiple: bool, accepted: bool) -> None:
        """Publishes were answered."""


class Truth(Protocol):
    """What really happened."""

    cluster: Cluster
    book: Book
    reference: Reference
    losses: Losses
    told: int
    happened: set[str]
    watermarks_at_start: dict[int, dict[str, int]]

    def fail(self, promise: str, text: str) -> NoReturn:
        """A promise is broken."""
        ...

    def generation_at(self, sequence: int) -> int:
        """In which generation the event at this sequence was made."""
        ...

    def is_lost(self, position: Position) -> bool:
        """Whether an operator has accepted that what stands there is lost."""
        ...

    def is_of_before(self, process: Process) -> bool:
        """Whether this process knows only what was before an accepted loss."""
        ...
