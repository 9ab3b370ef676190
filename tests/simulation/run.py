"""One seed: a cluster under load, faults, healing, a verdict."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from broker_plugin.embedded.operations.queue_operations import QueueState
from ha.settings import Settings
from tests.simulation.book import OK, UNKNOWN
from tests.simulation.client_link import ClientLink
from tests.simulation.clients import INPUT, OUTPUTS, Client, Consumer, Counter, Feeder, Keeper, Worker
from tests.simulation.cluster import NAMES, Cluster
from tests.simulation.coordinators import Coordinator, Operator
from tests.simulation.fault_kinds import restart
from tests.simulation.faults import COPIES, Fault, Faults, draw_schedule
from tests.simulation.flapping import Flapping
from tests.simulation.logs import logs_into
from tests.simulation.name_clients import Binder, Prober, Remover
from tests.simulation.operators import look_after
from tests.simulation.releases import Release
from tests.simulation.storeless import Storeless
from tests.simulation.truth import Broken
from tests.simulation.world import Endless, World
from txobserver.invariants import CHECKS, InvariantBroken

KINDS: tuple[tuple[type[Client], int], ...] = (
    (Feeder, 2),
    (Worker, 4),
    (Consumer, 3),
    (Counter, 1),
    (Keeper, 1),
    (Prober, 1),
    (Remover, 1),
    (Binder, 2),
    (Coordinator, 2),
    (Operator, 1),
)
LOAD_SECONDS = 1.2
HEAL_SECONDS = 60.0
STORELESS, FLAPPING = 0.4, 0.2
"""Of the seeds, when all else has been healed: in so many one node's access to the coordination store stays broken, and
in so many one backup gets no frame of the stream"""
APPLY_STEPS = (2000, 2000, 1, 2, 3)
"""How much a turn applies: where it is little, nearly every decision is applied in parts"""

if os.environ.get("TXHA_CHECK_INVARIANTS") != "0":  # 0: to see what the checks cost
    CHECKS.switch_on()


@dataclass
class Result:
    """What a seed did. ``broken`` is the promise that did not hold, with one sentence."""

    seed: int
    events: int = 0
    commits: int = 0
    unknown: int = 0
    failovers: int = 0
    faults: int = 0
    hits: int = 0
    broken: str = ""
    promise: str = ""
    struck: collections.Counter[str] = field(default_factory=collections.Counter)
    """How often each kind of fault found something to strike at"""
    schedule: list[Fault] = field(default_factory=list)
    transcript: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """A run without commits, or in which nothing broke an open transaction, proves nothing."""
        return not self.broken and (self.commits == 0 or self.hits == 0)


class Run:
    """``schedule`` None: the one that belongs to the seed. ``kinds``: which clients there are, and how many of each."""

    kinds = KINDS
    of_cluster = Cluster

    def __init__(self, seed: int, schedule: list[Fault] | None = None, transcript: bool = False) -> None:
        self.world = World(seed)
        if transcript:
            self.world.transcript = []
        chance = self.world.chance("run")
        size = chance.choice((2, 3, 3, 3, 4, 5))
        lease = chance.choice((0.4, 1.0))
        drawn = self.drawn() if schedule is None else schedule
        copies = any(fault.kind in COPIES for fault in drawn)
        settings = Settings(
            lease_ttl=lease,
            renew_every=lease / 5,
            heartbeat_every=0.4,
            silence=1.2,
            rejoin_every=0.2,
            probe_timeout=0.1,
            link_down_grace=0.15,
            beat_every=0.1,
            link_deadline=self.world.chance("beats").choice((0.3, 0.3, 0.75)),
            min_ready=chance.choice((1, 1, 1, 2)),
            checkpoint_every=min(chance.choice((0.2, 0.5, 2.0)), 0.2 if copies else 2.0),
            window_bytes=chance.choice((2000, 1 << 20)),
            recent_bytes=max(chance.choice((2000, 1 << 20)), 1 << 20 if copies else 0),
            prepare_timeout=chance.choice((0.5, 1.5)),
            backup_timeout=chance.choice((1.0, 2.0)),
            portion_bytes=chance.choice((1000, 1 << 20)),
            small_lag=chance.choice((3, 1000)),
            apply_steps=self.world.chance("parts").choice(APPLY_STEPS),
        )
        self.schedule = drawn
        size = self.size_of(size)
        releases = self.releases(list(NAMES[:size]))
        self.cluster = self.of_cluster(self.world, size, self.adapted(settings), copies, releases)
        self._clients: list[Client] = []

    def drawn(self) -> list[Fault]:
        """The schedule that belongs to the seed."""
        return draw_schedule(self.world, LOAD_SECONDS)

    def size_of(self, size: int) -> int:
        """How many nodes there are at first."""
        return size

    def adapted(self, settings: Settings) -> Settings:
        """The settings of every node."""
        return settings

    def releases(self, names: list[str]) -> dict[str, Release]:
        """Which release each node runs, where it is not today's."""
        return {}

    def run(self) -> Result:
        """All of it."""
        with logs_into(self.world):
            return self._run()

    def _run(self) -> Result:
        result = Result(self.world.seed, schedule=self.schedule)
        faults: Faults | None = None
        try:
            self._until(self.cluster.all_ready, 20.0, "a first primary with every backup ready")
            self._declare()
            self._clients = [kind(self.cluster, number) for kind, count in self.kinds for number in range(count)]
            self.world.run(self.world.now + 0.3)
            faults = Faults(self.cluster, self.schedule)
            self.world.run(self.world.now + LOAD_SECONDS)
            self._heal(faults)
            self._drain()
            self.cluster.truth.finished()
        except Broken as broken:
            result.broken, result.promise = str(broken), broken.promise
            self.world.say("checker", str(broken))
        except Endless as error:
            result.broken, result.promise = f"P12: {error}: {self._describe()}", "P12"
        except InvariantBroken as error:
            result.broken, result.promise = str(error), error.promise
            self.world.say("invariant", str(error))
        except Exception as error:
            result.broken, result.promise = f"error: {type(error).__name__}: {error}", "error"
            if self.world.transcript is not None:
                raise
        return self._counted(result, faults)

    def _counted(self, result: Result, faults: Faults | None) -> Result:
        book = self.cluster.book
        result.events = self.world.events
        result.commits, result.unknown = book.count(OK), book.count(UNKNOWN)
        result.failovers = max(0, len(self.cluster.truth.watermarks_at_start) - 1)
        if faults is not None:
            faults.struck.update(self.cluster.truth.losses.struck())
            result.faults, result.hits, result.struck = faults.struck.total(), faults.hits, faults.struck
        result.transcript = self.world.transcript or []
        return result

    def _declare(self) -> None:
        declared: list[QueueState] = []
        client = Declarer(self.cluster, 0)
        for queue in (INPUT, *OUTPUTS):
            client.queues.append(queue)
        client.declared = declared
        self._until(lambda: len(declared) == 1 + len(OUTPUTS), 5.0, "the queues")
        client.stopping = True
        assert client.link is not None
        client.link.close()

    def _heal(self, faults: Faults) -> None:
        """No more faults: everything must come to an end (P12)."""
        self.world.say("run", "heals")
        faults.end_all()
        healed = self.world.now
        self.world.run(self.world.now + 0.3)
        for name in sorted(self.cluster.disks):
            restart(self.cluster, name)
        self._until(self._calm, HEAL_SECONDS, "every node ready and in step")
        if self.world.chance("storeless").random() < STORELESS:
            faults.struck["storeless"] += 1
            self._until(lambda: self._past_writes(healed), HEAL_SECONDS, "writes of before")
            Storeless(self.cluster, self._until).live_without(self.world.chance("storeless/which"))
            self._until(self._calm, HEAL_SECONDS, "every node ready again and in step")
        if self.world.chance("flapping").random() < FLAPPING:
            faults.struck["flapping"] += 1
            Flapping(self.cluster, self._until).commit_beside(self.world.chance("flapping/which"))
            self._until(self._calm, HEAL_SECONDS, "every node ready behind a middlebox that has gone")

    def _past_writes(self, healed: float) -> bool:
        """Whether every write that a disk was slow with has ended: until then its node may still leave."""
        return self._calm() and not any(each.store.writes_since_before(healed) for each in self.cluster.running())

    def _calm(self) -> bool:
        for name in self.cluster.disks:
            if name not in self.cluster.processes:
                restart(self.cluster, name)
        look_after(self.cluster)
        return self.cluster.all_ready()

    def _drain(self) -> None:
        """No more orders; what is there is worked off and taken."""
        for client in self._clients:
            client.stopping = True
        self._until(self._worked_off, HEAL_SECONDS, "empty queues and an answer to every client")
        for link in list(self.cluster.links):
            link.close()
        self._until(self._in_step, HEAL_SECONDS, "every node in step")
        for process in self.cluster.running():
            for error in process.loop.forgotten():
                raise Broken("error", f"{process.name}: an error was not looked at: {error!r}")

    def _worked_off(self) -> bool:
        queues = self.cluster.truth.reference.by_name
        return not self.cluster.book.unanswered() and not any(queues[name].contents for name in (INPUT, *OUTPUTS))

    def _in_step(self) -> bool:
        members = self.cluster.members()
        processes = [process for process in self.cluster.running() if process.name in members]
        stand = {process.core.replica.applied for process in processes}
        return len(stand) == 1 and not any(process.core.replica.buffers for process in processes)

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        end = self.world.now + seconds
        while not condition():
            if self.world.now >= end:
                raise Broken("P12", f"{seconds:.0f} s have brought no {what}: {self._describe()}")
            self.world.run(self.world.now + 0.05)

    def _describe(self) -> str:
        nodes = [f"{p.name} {p.core.state} {p.core.replica.tail}" for p in self.cluster.running()]
        return f"{self.cluster.coordination.record}; " + "; ".join(nodes)


class Declarer(Client):
    """Declares the queues of a run."""

    kind = "declarer"

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self.queues: list[str] = []
        self.declared: list[QueueState] = []

    def connected(self, link: ClientLink) -> None:
        self.declared.clear()  # of a connection that was lost before all had been answered
        for queue in self.queues:
            link.queues.declare(QueueDeclare(queue, durable=True), self.declared.append)
