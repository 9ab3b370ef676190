"""What breaks: each kind a class, each single fault one entry of a schedule that is drawn before the run begins.

A fault begins at a time and mostly ends after a while. Its choices come from its own source of chance, so that a
schedule with one entry less is the same schedule otherwise. Which kinds a run mixes, and how often they strike, is
drawn per seed (swarm): a run in which everything breaks all the time never gets far enough to break in the rare ways.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.cluster import Cluster
from tests.simulation.world import World
from txobserver.store import StoreDamaged

Ending = Callable[[], None]


@dataclass(frozen=True)
class Fault:
    """One entry of a schedule: when it begins and how long it lasts, in seconds; ``number`` seeds its choices."""

    at: float
    kind: str
    seconds: float
    number: int

    def __str__(self) -> str:
        return f"{self.at:.2f} s: {self.kind} for {self.seconds:.2f} s (#{self.number})"


def draw_schedule(world: World, seconds: float) -> list[Fault]:
    """A schedule for a run of this length."""
    chance = world.chance("faults")
    kinds = [kind for kind in KINDS if chance.random() < 0.35] or ["kill"]
    pause = chance.choice((0.05, 0.1, 0.2, 0.4))
    faults, at = [], chance.uniform(0.05, 0.3)
    while at < seconds:
        kind = chance.choice(kinds)
        faults.append(Fault(at, kind, chance.choice((0.02, 0.1, 0.3, 0.8, 1.2)), len(faults)))
        at += chance.expovariate(1 / pause)
    return faults


class Faults:
    """Carries a schedule out. ``hits`` counts faults that struck while a transaction was open."""

    def __init__(self, cluster: Cluster, schedule: list[Fault]) -> None:
        self.struck = 0
        self.hits = 0
        self._cluster = cluster
        self._world = cluster.world
        self._endings: dict[int, Ending] = {}
        for fault in schedule:
            self._world.after(fault.at, lambda f=fault: self._strike(f))  # type: ignore[misc]

    def _strike(self, fault: Fault) -> None:
        chance = self._world.chance(f"fault/{fault.number}/{fault.kind}")
        ending = KINDS[fault.kind](self._cluster, chance)
        if ending is None:
            return
        self.struck += 1
        self.hits += self._cluster.book.open_now() > 0
        self._endings[fault.number] = ending
        self._world.after(fault.seconds, lambda: self._end(fault.number))

    def _end(self, number: int) -> None:
        ending = self._endings.pop(number, None)
        if ending is not None:
            ending()

    def end_all(self) -> None:
        """Everything that lasts ends now."""
        for number in sorted(self._endings):
            self._end(number)


# -- who may be harmed


def some_node(cluster: Cluster, chance: random.Random) -> str:
    """Any node; the primary half of the time."""
    record = cluster.coordination.record
    if record is not None and record.primary is not None and chance.random() < 0.5:
        return record.primary.node
    return chance.choice(sorted(cluster.disks))


def may_lose_disk(cluster: Cluster, name: str) -> bool:
    """Whether another member of the ready set keeps its disk (P2), whatever change of it is still under way."""
    record = cluster.coordination.record
    if record is None or cluster.coordination.under_way:
        return False
    disks = [cluster.disks[m.node] for m in record.ready if m.node != name and cluster.disks[m.node].member == m]
    keepers = [disk for disk in disks if not disk.damaged]
    spoiled = [p for p in cluster.running() if p.name != name and p.failed]
    serves = record.primary is not None and record.primary.node in cluster.processes
    return bool(keepers) and not spoiled and serves


def restart(cluster: Cluster, name: str) -> None:
    """Bring a node back; one whose store is damaged gets a new one. Where a disk does not work, it stays down."""
    if name in cluster.processes:
        return
    if isinstance(cluster.start(name), StoreDamaged):
        cluster.world.say("operator", f"gives {name} a new disk")
        cluster.new_disk(name)
        cluster.start(name)


# -- the kinds: each strikes and returns how it ends, or None where there is nothing to strike


def kill(cluster: Cluster, chance: random.Random) -> Ending | None:
    """SIGKILL of one node, which comes back."""
    return _kill(cluster, some_node(cluster, chance), power=False)


def power_cut(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A power cut of one node."""
    return _kill(cluster, some_node(cluster, chance), power=True)


def _kill(cluster: Cluster, name: str, power: bool) -> Ending | None:
    if name not in cluster.processes:
        return None
    cluster.world.say("fault", f"{'power cut at' if power else 'SIGKILL of'} {name}")
    cluster.kill(name, power)
    return lambda: restart(cluster, name)


def kill_all(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Every node at once."""
    names, power = sorted(cluster.processes), chance.random() < 0.5
    cluster.world.say("fault", f"{'power cut at' if power else 'SIGKILL of'} all")
    for name in names:
        cluster.kill(name, power)
    back = sorted(names, key=lambda name: chance.random())

    def ending() -> None:
        for number, name in enumerate(back):
            cluster.world.after(number * chance.uniform(0, 0.4), lambda n=name: restart(cluster, n))  # type: ignore[misc]

    return ending


def pause(cluster: Cluster, chance: random.Random) -> Ending | None:
    """SIGSTOP."""
    name = some_node(cluster, chance)
    process = cluster.processes.get(name)
    if process is None or process.paused:
        return None
    cluster.world.say("fault", f"SIGSTOP of {name}")
    process.pause()

    def ending() -> None:
        cluster.world.say("fault", f"SIGCONT of {name}")
        process.go_on()

    return ending


def cut(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node, or one pair, or one direction of a pair, is cut off; from the coordination store too, perhaps."""
    name = some_node(cluster, chance)
    others = [other for other in sorted(cluster.disks) if other != name]
    if chance.random() < 0.5:
        others = [chance.choice(others)]
    pairs = [(name, other) for other in others] + [(other, name) for other in others]
    if chance.random() < 0.4:
        pairs = pairs[: len(others)] if chance.random() < 0.5 else pairs[len(others) :]
    stall, store = chance.random() < 0.5, chance.random() < 0.4
    cluster.world.say("fault", f"{'stalls' if stall else 'cuts'} {pairs}{' and the store' if store else ''}")
    for pair in pairs:
        cluster.network.cut(*pair, stall)
    if store:
        cluster.coordination.cut_off.add(name)

    def ending() -> None:
        cluster.world.say("fault", f"heals {pairs}")
        cluster.network.heal(pairs)
        cluster.coordination.cut_off.discard(name)

    return ending


def loss(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Connections between nodes break, each at some message."""
    cluster.network.loss = chance.choice((0.002, 0.01, 0.05))
    cluster.world.say("fault", f"connections break ({cluster.network.loss})")

    def ending() -> None:
        cluster.network.loss = 0.0

    return ending


def slow_network(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Everything between nodes takes longer."""
    cluster.network.slowness = chance.choice((10.0, 50.0, 200.0))
    cluster.world.say("fault", f"network slower by {cluster.network.slowness}")

    def ending() -> None:
        cluster.network.slowness = 1.0

    return ending


def slow_disk(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node's disk takes longer."""
    disk = cluster.disks[some_node(cluster, chance)]
    disk.slowness = chance.choice((10.0, 100.0, 1000.0))
    cluster.world.say("fault", f"disk of {disk.member} slower by {disk.slowness}")

    def ending() -> None:
        disk.slowness = 1.0

    return ending


def full_disk(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node's disk is full; when there is room again, the node is started."""
    return _failing(cluster, some_node(cluster, chance), "full")


def failing_sync(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node's disk does not sync."""
    return _failing(cluster, some_node(cluster, chance), "sync_fails")


def read_error(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node's log cannot be read for a while."""
    return _failing(cluster, some_node(cluster, chance), "read_fails")


def _failing(cluster: Cluster, name: str, what: str) -> Ending:
    disk = cluster.disks[name]
    setattr(disk.files, what, True)
    cluster.world.say("fault", f"disk of {name}: {what}")

    def ending() -> None:
        setattr(disk.files, what, False)
        cluster.world.say("fault", f"disk of {name} works again")
        restart(cluster, name)

    return ending


def lost_disk(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node and its disk are gone; it comes back with a new one."""
    return _lose(cluster, chance, flip=False)


def flipped_bit(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node goes down, and a bit of its log is another when it comes back."""
    return _lose(cluster, chance, flip=True)


def _lose(cluster: Cluster, chance: random.Random, flip: bool) -> Ending | None:
    name = some_node(cluster, chance)
    if not may_lose_disk(cluster, name) or name not in cluster.processes:
        return None
    cluster.world.say("fault", f"{'a bit flips on' if flip else 'loses'} the disk of {name}")
    cluster.kill(name, power=False)
    cluster.disks[name].damaged = flip and cluster.disks[name].files.flip(chance)
    if not flip:
        cluster.new_disk(name)
    return lambda: restart(cluster, name)


def stalled_store(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The coordination store answers nobody for a while."""
    coordination = cluster.coordination
    coordination.stalled_until = cluster.world.now + chance.choice((0.3, 0.8, 2.0))
    cluster.world.say("fault", "the coordination store stalls")

    def ending() -> None:
        coordination.stalled_until = cluster.world.now

    return ending


def unreliable_store(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Changes of the record get lost, or land late, or land and nobody is told."""
    cluster.coordination.unreliable = chance.choice((0.2, 0.6, 1.0))
    cluster.world.say("fault", f"changes of the record go astray ({cluster.coordination.unreliable})")

    def ending() -> None:
        cluster.coordination.unreliable = 0.0

    return ending


def clock_jump(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One machine was suspended for a while: its clock has gone on."""
    process = cluster.processes.get(some_node(cluster, chance))
    if process is None:
        return None
    process.clock.skipped += chance.choice((0.3, 1.5, 30.0))
    cluster.world.say("fault", f"clock of {process.name} jumps")
    return lambda: None


def clients_dropped(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Connections of clients break."""
    dropped = [link for link in cluster.links if chance.random() < 0.5]
    cluster.world.say("fault", f"{len(dropped)} clients lose their connection")
    for link in dropped:
        link.drop()
    return lambda: None


def leave(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node is stopped in good order, and comes back."""
    name = some_node(cluster, chance)
    process = cluster.processes.get(name)
    if process is None or process.paused:
        return None
    cluster.world.say("fault", f"SIGTERM of {name}")
    process.leave()
    return lambda: restart(cluster, name)


def handover(cluster: Cluster, chance: random.Random) -> Ending | None:
    """An operator promotes a backup."""
    process = cluster.processes.get(chance.choice(sorted(cluster.disks)))
    if process is None:
        return None
    cluster.world.say("fault", f"promote {process.name}")
    process.operate(lambda: process.core.promote(False))
    return lambda: None


KINDS: dict[str, Callable[[Cluster, random.Random], Ending | None]] = {
    kind.__name__: kind
    for kind in (
        *(kill, power_cut, kill_all, pause, cut, loss, slow_network, slow_disk, full_disk, failing_sync, read_error),
        *(lost_disk, flipped_bit, stalled_store, unreliable_store, clock_jump, clients_dropped, leave, handover),
    )
}
