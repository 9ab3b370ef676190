"""Faults of the coordination record, and what operators do about them and besides."""

from __future__ import annotations

import random

from recovery.planner.facts import StoreCondition
from tests.simulation.cluster import Cluster
from tests.simulation.fault_kinds import Ending, may_lose_disk, restart, some_node
from tests.simulation.operators import discard_store, recover, recover_accepting, start_all, stop_all, survey


def stalled_store(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The coordination store answers no node for a while."""
    coordination = cluster.coordination
    until = cluster.world.now + chance.choice((0.3, 0.8, 2.0))
    ending = cluster.lasting.change(coordination, "stalled_until", max(until, coordination.stalled_until))
    cluster.world.say("fault", "the coordination store stalls")
    return ending


def slow_store(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Everything that the coordination store does takes longer."""
    ending = cluster.lasting.change(cluster.coordination, "slowness", chance.choice((5.0, 20.0, 60.0)))
    cluster.world.say("fault", f"the coordination store is slower by {cluster.coordination.slowness}")
    return ending


def unreliable_store(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Changes of the record get lost, or land late, or land and no node is told."""
    ending = cluster.lasting.change(cluster.coordination, "unreliable", chance.choice((0.2, 0.6, 1.0)))
    cluster.world.say("fault", f"changes of the record go astray ({cluster.coordination.unreliable})")
    return ending


def repeating_store(cluster: Cluster, chance: random.Random) -> Ending | None:
    """Changes of the record are made twice; what is told is what became of the second."""
    ending = cluster.lasting.change(cluster.coordination, "repeating", chance.choice((0.3, 1.0)))
    cluster.world.say("fault", f"changes of the record are made twice ({cluster.coordination.repeating})")
    return ending


def lost_record(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The coordination record is gone; an operator has a new one written from the stores."""
    if not recoverable(cluster):
        return None
    cluster.world.say("fault", "the coordination record is lost")
    cluster.coordination.lose(None)
    return lambda: recover(cluster)


def older_record(cluster: Cluster, chance: random.Random) -> Ending | None:
    """An older copy stands in the place of the record: no node that has gone by a later one goes by it.

    Nodes that have not are not started, until an operator has had a record written from the stores.
    """
    known = [process.core.record for process in cluster.running()]
    seen = min((record.version if record is not None else 0 for record in known), default=0)
    copies = [record for record in cluster.coordination.history if record.version < seen]
    if not copies or not recoverable(cluster):
        return None
    copy = chance.choice(copies)
    cluster.world.say("fault", f"version {copy.version} of the coordination record is put in its place")
    cluster.coordination.lose(copy)
    return lambda: recover(cluster)


def empty_node_first(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The record is lost, and with it a node's disk; that node starts first, again and again, with its new one.

    Where another ready member keeps its disk. An operator accepts that the new store is empty, and loses nothing by it.
    """
    names = [name for name in sorted(cluster.processes) if may_lose_disk(cluster, name)]
    if not names or not recoverable(cluster):
        return None
    name = chance.choice(names)
    cluster.world.say("fault", f"the coordination record is lost, and the disk of {name}")
    cluster.kill(name, power=True)
    cluster.new_disk(name)
    cluster.coordination.lose(None)
    over = False

    def again() -> None:
        if not over and name not in cluster.processes:
            cluster.start(name)
        if not over:
            cluster.world.after(0.1, again)

    def ending() -> None:
        nonlocal over
        over = True
        stop_all(cluster)
        cluster.kept_down |= set(cluster.disks)
        recover_accepting(cluster, lost=False)

    again()
    return ending


def killed_in_checkpoint(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A node gets a new store, is killed while it makes durable what is copied to it, starts, and loses power soon.

    The next process may read a checkpoint that is in memory alone.
    """
    record = cluster.coordination.valid
    primary = record.primary.node if record is not None and record.primary is not None else ""
    names = [name for name in sorted(cluster.processes) if name != primary and may_lose_disk(cluster, name)]
    if not names:
        return None
    name = chance.choice(names)
    cluster.world.say("operator", f"discards the store of {name}, which is killed in its first checkpoints")
    cluster.kill(name, power=False)
    discard_store(cluster, name)
    cluster.start(name)
    kills, over = chance.randint(1, 3), False

    def look() -> None:
        nonlocal kills
        process = cluster.processes.get(name)
        if process is not None and process.store.writes_checkpoint and chance.random() < 0.3:
            kills -= 1
            cluster.world.say("fault", f"SIGKILL of {name} in a checkpoint")
            cluster.kill(name, power=False)
            cluster.start(name)
            if not kills:
                cluster.world.after(chance.choice((0.02, 0.1, 0.3)), lambda: _kill(cluster, name))
        if kills and not over:
            cluster.world.after(0.001, look)

    def ending() -> None:
        nonlocal over
        over = True
        restart(cluster, name)

    look()
    return ending


def _kill(cluster: Cluster, name: str) -> None:
    if name in cluster.processes:
        cluster.world.say("fault", f"power cut at {name}")
        cluster.kill(name, power=True)
        cluster.world.after(0.1, lambda: restart(cluster, name))


def recoverable(cluster: Cluster) -> bool:
    """Whether the record can be written from the stores without the loss of what was acknowledged."""
    if cluster.coordination.gone or cluster.coordination.valid is None or cluster.kept_down:
        return False
    stores = survey(cluster, None).stores
    if any(cluster.truth.is_lost(store.tail) for store in stores):
        return False
    return all(store.condition in (StoreCondition.WHOLE, StoreCondition.RESYNCING) for store in stores)


def stop_and_start(cluster: Cluster, chance: random.Random) -> Ending | None:
    """An operator stops all nodes, looks, and starts them."""
    if cluster.coordination.gone:
        return None
    cluster.world.say("operator", "stops all nodes")
    stop_all(cluster)
    return lambda: start_all(cluster)


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


def discard(cluster: Cluster, chance: random.Random) -> Ending | None:
    """An operator stops a node, gives its store up, and starts it with an empty one."""
    name = some_node(cluster, chance)
    if name not in cluster.processes or not may_lose_disk(cluster, name, settled=False):
        return None
    cluster.world.say("operator", f"discards the store of {name}")
    cluster.kill(name, power=False)
    discard_store(cluster, name)
    cluster.start(name)
    return lambda: None
