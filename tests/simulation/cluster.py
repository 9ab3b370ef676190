"""A cluster in one world: disks, the processes that run on them, the network, the coordination store, the clients."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ha.membership.belonging import membership_of
from ha.membership.node_state import ACTIVE
from ha.membership.record import first_record
from ha.settings import Settings
from tests.simulation.book import Book
from tests.simulation.checkers import CHECKERS
from tests.simulation.coordination import SimCoordination
from tests.simulation.disk import SPEEDS, Disk
from tests.simulation.lasting import Lasting
from tests.simulation.loop import MachineClock
from tests.simulation.network import Network
from tests.simulation.process import CLUSTER_ID, Process
from tests.simulation.releases import Release
from tests.simulation.truth import Truth
from tests.simulation.world import World
from txobserver.ports.store import StoreDamaged, StoreError

if TYPE_CHECKING:
    from tests.simulation.client_link import ClientLink

NAMES = "abcdefg"
CLOCK_DRIFT = 0.01
"""How much faster or slower than true time a machine's clock may run, as a fraction"""


class Cluster:
    """Nodes a, b, c, …; a name without a process is a node that is down. ``kept_down``: these are not started.
    ``trouble``: actions of cluster calls fail and hang at times; ``stalls``: clients stall at times, by this chance;
    ``quiet``: clients do nothing for a while."""

    name = "simulated"

    def __init__(
        self,
        world: World,
        size: int,
        settings: Settings,
        copies: bool = False,
        releases: dict[str, Release] | None = None,
    ) -> None:
        """``copies``: so little of the log is kept that a node that comes with a new disk needs a copy of the
        queues. ``releases``: what a node's next process runs, if it is not today's."""
        self.world = world
        self.settings = settings
        self.releases = releases or {}
        self.kept_down: set[str] = set()
        self.trouble = False
        self.quiet = False
        self.stalls: random.Random | None = None
        self.lasting = Lasting()
        self.starts = 0
        self.book = Book()
        self.links: list[ClientLink] = []
        self._chance = world.chance("cluster")
        self._incarnations = 0
        self.checkpoint_seconds = world.chance("checkpoints").choice(SPEEDS)
        self.retention = 1.0 if self.checkpoint_seconds[1] < 0.1 else 3.0
        if settings.portion_bytes > 1000 and self.checkpoint_seconds[1] < 0.1:
            # So short that a joiner needs a copy of the queues; one that took longer than this would never be enough.
            self.retention = world.chance("retention").choice((0.1, 0.1, 1.0))
        if copies:  # the primary has in memory what comes behind the copy
            self.retention = 0.1
        self.clocks: dict[str, MachineClock] = {}
        self.disks: dict[str, Disk] = {}
        self.processes: dict[str, Process] = {}
        names = list(NAMES[:size])
        for name in names:
            self.clocks[name] = self.new_clock()
            self.new_disk(name)
        self.truth = Truth(self, self.book)
        self.truth.watch([checker(self.truth) for checker in CHECKERS])
        self.coordination = SimCoordination(world, self.truth.record_changed)
        self.coordination.write(first_record(self.name, CLUSTER_ID, self.disks[names[0]].member))
        self.network = Network(world)
        for name in names:
            self.start(name)

    def new_clock(self) -> MachineClock:
        """Of one more machine."""
        offset, rate = self._chance.uniform(0, 1000), 1 + self._chance.uniform(-CLOCK_DRIFT, CLOCK_DRIFT)
        return MachineClock(self.world, offset, rate)

    @property
    def founding(self) -> tuple[str, ...]:
        """The nodes that the files of all nodes list."""
        return tuple(self.disks)

    def listed_by(self, name: str) -> list[str]:
        """The nodes that the file of this node lists."""
        return list(self.disks)

    def members(self) -> set[str]:
        """The nodes that belong to the cluster."""
        membership = membership_of(self.coordination.record)
        return set(self.founding) if membership is None else {each.name for each in membership.nodes}

    def new_disk(self, name: str) -> None:
        """An empty disk for a node that is down."""
        self._incarnations += 1
        self.disks[name] = Disk(self.world, name, self._incarnations, self.clocks[name], self.checkpoint_seconds)

    def start(self, name: str) -> StoreError | None:
        """Start a node that is down; returns why its store cannot be opened, if it cannot.

        Without a record none starts (``broker_plugin.node.membership``), and none is started while an operator knows
        that the record is an old copy: nothing in one of the same generation gives it away. One of a generation that is
        lower than what the node's disk has seen does, and the node waits.
        """
        if not self.may_start(name):
            self.world.say(name, "does not start: the coordination record is gone, or an older copy")
            return None
        if name in self.kept_down:
            return None
        self.starts += 1
        try:
            self.processes[name] = Process(self, self.disks[name], self.clocks[name])
        except StoreError as error:
            self.world.say(name, f"does not start: {error}")
            if isinstance(error, StoreDamaged) and not self.disks[name].damaged:
                self.truth.fail("P2", f"{name} gives its store up for damaged, and nothing has damaged it: {error}")
            return error
        self.world.say(name, f"starts at {self.processes[name].core.replica.tail}")
        return None

    def may_start(self, name: str) -> bool:
        """Whether there is a record to start with, or an older copy that gives itself away."""
        left = self.coordination.record
        seen = self.disks[name].last_durable()[0]
        return not self.coordination.gone or (left is not None and left.generation < seen)

    def kill(self, name: str, power: bool) -> None:
        """SIGKILL, or a power cut, which also takes what was not synced."""
        process = self.processes.pop(name)
        process.end()
        self.network.process_ended(process.loop, power)
        for link in [each for each in self.links if each.process is process]:
            link.process_ended()
        if power:
            self.disks[name].power_cut()
        else:
            process.child.look_later()

    def ended(self, process: Process) -> None:
        """A process has ended by itself."""
        if self.processes.get(process.name) is process:
            self.kill(process.name, power=False)

    def running(self) -> list[Process]:
        """All running processes, by name."""
        return [self.processes[name] for name in sorted(self.processes)]

    def serving(self, chance: random.Random) -> Process | None:
        """A node that takes clients now."""
        there = [
            p for p in self.running() if p.broker.active and not p.broker.draining and not p.paused and p.failed is None
        ]
        return chance.choice(there) if there else None

    def all_ready(self) -> bool:
        """One active primary, every other node ready and listed, none missing."""
        members = self.members()
        states = sorted(process.core.state for process in self.processes.values() if process.name in members)
        record = self.coordination.record
        listed = {member.node for member in record.ready} if record else set()
        return states == [ACTIVE] + ["ready"] * (len(members) - 1) and listed == members
