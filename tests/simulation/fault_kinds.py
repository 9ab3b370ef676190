"""The kinds of faults: each strikes and returns how it ends, or None where there is nothing to strike."""

from __future__ import annotations

import random
from collections.abc import Callable

from recovery.store.groups import SECTOR
from tests.simulation.cluster import Cluster
from tests.simulation.lasting import Ending
from tests.simulation.network import Pair
from txobserver.ports.store import StoreDamaged

LOOK, SOON = 0.0003, 0.4
"""Seconds between two looks at what a node writes, and how long is waited for that"""

# -- who may be harmed


def some_node(cluster: Cluster, chance: random.Random) -> str:
    """Any node; the primary half of the time."""
    record = cluster.coordination.valid
    if record is not None and record.primary is not None and chance.random() < 0.5:
        return record.primary.node
    return chance.choice(sorted(cluster.disks))


def may_lose_disk(cluster: Cluster, name: str, settled: bool = True) -> bool:
    """Whether another member of the ready set keeps its disk (P2), whatever change of it is still under way.

    ``settled``: not while one is.
    """
    record = cluster.coordination.record
    if record is None or (settled and cluster.coordination.under_way) or cluster.coordination.gone:
        return False
    disks = [cluster.disks[m.node] for m in record.ready if m.node != name and cluster.disks[m.node].member == m]
    keepers = [disk for disk in disks if not (disk.damaged or disk.fails)]
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


# -- the kinds


def kill(cluster: Cluster, chance: random.Random) -> Ending | None:
    """SIGKILL of one node, which comes back."""
    return _kill(cluster, some_node(cluster, chance), power=False)


def power_cut(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A power cut of one node, half of the time as soon as it writes a group of several sectors, if it soon does."""
    name = some_node(cluster, chance)
    if chance.random() < 0.5 or name not in cluster.processes:
        return _kill(cluster, name, power=True)
    waiting, until = [True], cluster.world.now + SOON

    def look() -> None:
        process = cluster.processes.get(name)
        if not waiting or process is None:
            return
        if cluster.world.now >= until or (process.store is not None and process.store.appending > SECTOR):
            _kill(cluster, name, power=True)
        else:
            cluster.world.after(LOOK, look)

    def ending() -> None:
        waiting.clear()
        restart(cluster, name)

    look()
    return ending


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
    process.pause(chance.choice((0, 1, 2, 3, 5)))

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
    heal = cut_ways(cluster, pairs, stall)
    reach = cluster.lasting.hold(cluster.coordination.cut_off, name) if store else None

    def ending() -> None:
        if reach is not None:
            reach()
        cluster.world.say("fault", f"heals {heal()}")

    return ending


def cut_ways(cluster: Cluster, pairs: list[Pair], stall: bool) -> Callable[[], list[Pair]]:
    """Packets go none of these ways until what is returned is called; that returns which ways they go again."""
    for pair in pairs:
        cluster.network.cut(*pair, stall)
    heals = [cluster.lasting.hold(cluster.network.down, pair) for pair in pairs]

    def ending() -> list[Pair]:
        for heal in heals:
            heal()
        healed = [pair for pair in pairs if pair not in cluster.network.down]
        cluster.network.heal(healed)
        return healed

    return ending


def loss(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Connections between nodes break, each at some message; and one is dead, of which neither end is told."""
    cluster.network.make_one_dead()
    ending = cluster.lasting.change(cluster.network, "loss", chance.choice((0.002, 0.01, 0.05)))
    cluster.world.say("fault", f"connections break ({cluster.network.loss})")
    return ending


def slow_network(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Everything between nodes takes longer."""
    ending = cluster.lasting.change(cluster.network, "slowness", chance.choice((10.0, 50.0, 200.0)))
    cluster.world.say("fault", f"network slower by {cluster.network.slowness}")
    return ending


def slow_disk(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node's disk takes longer."""
    disk = cluster.disks[some_node(cluster, chance)]
    ending = cluster.lasting.change(disk, "slowness", chance.choice((10.0, 100.0, 1000.0)))
    cluster.world.say("fault", f"disk of {disk.member} slower by {disk.slowness}")
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
    works = cluster.lasting.change(disk.files, what, True)
    cluster.world.say("fault", f"disk of {name}: {what}")

    def ending() -> None:
        works()
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


def wall_clock_jump(cluster: Cluster, chance: random.Random) -> Ending | None:
    """An operator sets the wall clock of one machine: by seconds, days or years, ahead or back."""
    name = some_node(cluster, chance)
    milliseconds = chance.choice((-1, 1)) * chance.choice((5_000, 3 * 86_400_000, 30 * 365 * 86_400_000))
    cluster.clocks[name].wall_offset += milliseconds
    cluster.world.say("fault", f"the wall clock of {name} is set by {milliseconds} ms")

    def ending() -> None:
        cluster.clocks[name].wall_offset -= milliseconds

    return ending


def slow_checkpoints(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node's checkpoints take long, longer than any timeout at times."""
    disk = cluster.disks[some_node(cluster, chance)]
    seconds = chance.choice(((0.05, 0.5), (0.5, 2.0), (1.0, 4.0)))
    cluster.world.say("fault", f"checkpoints of {disk.member} take {seconds} s")
    return cluster.lasting.change(disk, "checkpoint_seconds", seconds)


def failing_checkpoint(cluster: Cluster, chance: random.Random) -> Ending | None:
    """One node's disk takes no checkpoint; when it does again, the node is started."""
    name = some_node(cluster, chance)
    disk = cluster.disks[name]
    works = cluster.lasting.change(disk.base, "fails", True)
    cluster.world.say("fault", f"disk of {name} takes no checkpoint")

    def ending() -> None:
        works()
        restart(cluster, name)

    return ending
