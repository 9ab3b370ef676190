"""Combinations of faults, as in ``combinations``, that are aimed at a disk: at a copy, a vote, what a node leaves."""

from __future__ import annotations

import random

from tests.simulation.clients import Keeper
from tests.simulation.cluster import Cluster
from tests.simulation.combinations import Steps, a_backup, serving_primary
from tests.simulation.disk import SLOWEST
from tests.simulation.fault_kinds import Ending, may_lose_disk, restart
from tests.simulation.process import Process


def copy_in_memory_alone(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A joiner is killed while it makes durable what it has copied, again and again, until it has it in memory alone.

    The next process reads that, and must not count on it: when the node is ready, it loses power, or all of them do.
    """
    primary = serving_primary(cluster)
    joiner = a_backup(cluster, chance, primary) if primary is not None else None
    if primary is None or joiner is None or not may_lose_disk(cluster, joiner.name):
        return None
    steps, name, all_of_them = Steps(cluster), joiner.name, chance.random() < 0.5
    steps.say(f"loses the disk of {name}")
    cluster.kill(name, power=False)
    cluster.new_disk(name)
    disk = cluster.disks[name]
    cluster.start(name)

    def ends_copy() -> bool:
        process = cluster.processes.get(name)
        marked = process is not None and disk.base.durable.meta.resyncing
        return marked and not process.core.replica.resyncing and process.store.writes_checkpoint  # type: ignore[union-attr]

    def strike() -> None:
        steps.say(f"SIGKILL of {name} at the end of its copy")
        cluster.kill(name, power=False)
        alone = not disk.base.meta.resyncing
        cluster.start(name)
        if alone:
            steps.say(f"the copy is in the memory of {name} alone")
            steps.when(ready, lose_power)
        else:
            steps.when(ends_copy, strike, every=0.0003)

    def ready() -> bool:
        record = cluster.coordination.valid
        return record is not None and disk.member in record.ready

    def lose_power() -> None:
        for victim in sorted(cluster.processes) if all_of_them else [name]:
            steps.kill(victim, power=True)
            steps.after(0.1, lambda v=victim: restart(cluster, v))  # type: ignore[misc]

    steps.when(ends_copy, strike, every=0.0003)
    return steps.end


def slow_joiner(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A node gets a new disk whose checkpoints take longer than any timeout, from then on, and needs a copy."""
    primary = serving_primary(cluster)
    joiner = a_backup(cluster, chance, primary) if primary is not None else None
    if primary is None or joiner is None or not may_lose_disk(cluster, joiner.name):
        return None
    steps, name = Steps(cluster), joiner.name
    steps.say(f"{name} gets a new disk, a slow one")
    cluster.kill(name, power=False)
    cluster.new_disk(name)
    cluster.disks[name].checkpoint_seconds = SLOWEST
    cluster.start(name)
    return steps.end


def damaged_while_serving(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The primary cannot read its queues' pages any more, until its process has ended and an operator has mended that.

    Or until the fault ends, if nothing has been read meanwhile.
    """
    primary = serving_primary(cluster)
    if primary is None:
        return None
    name, base, world = primary.name, primary.disk.base, cluster.world
    world.say("fault", f"pages of {name} are damaged")
    base.damaged = True

    def mended() -> None:
        if base.damaged and cluster.processes.get(name) is primary:
            world.after(0.1, mended)
        elif base.damaged:
            world.say("operator", f"has mended the pages of {name}")
            base.damaged = False
            restart(cluster, name)

    def ending() -> None:
        if cluster.processes.get(name) is primary:
            base.damaged = False

    world.after(0.1, mended)
    return ending


def copied_again_and_again(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A node gets a new disk, and another as soon as it has its copy, while queues are declared and deleted."""
    primary = serving_primary(cluster)
    joiner = a_backup(cluster, chance, primary) if primary is not None else None
    if primary is None or joiner is None or not may_lose_disk(cluster, joiner.name):
        return None
    steps, name = Steps(cluster), joiner.name
    keepers = [Keeper(cluster, number) for number in range(10, 14)]

    def again() -> None:
        if name in cluster.processes and may_lose_disk(cluster, name):
            steps.say(f"loses the disk of {name}")
            cluster.kill(name, power=False)
            cluster.new_disk(name)
            cluster.start(name)
        steps.when(ready, lambda: steps.after(chance.uniform(0.0, 0.02), again))

    def ready() -> bool:
        record = cluster.coordination.valid
        return record is not None and cluster.disks[name].member in record.ready

    def no_more() -> None:
        for keeper in keepers:
            keeper.stopping = True

    steps.at_end(no_more)
    again()
    return steps.end


def leaves_to_nobody(cluster: Cluster, chance: random.Random) -> Ending | None:
    """All backups lose their disks, and when the primary has seen that they are gone, its own is full, and it ends."""
    primary = serving_primary(cluster)
    others = [name for name in sorted(cluster.disks) if primary is not None and name != primary.name]
    if primary is None or primary.disk.fails or not all(may_lose_disk(cluster, name) for name in others):
        return None
    steps = Steps(cluster)
    steps.say(f"loses all disks but that of {primary.name}")
    for name in others:
        if name in cluster.processes:
            cluster.kill(name, power=False)
        cluster.new_disk(name)
        steps.at_end(lambda n=name: restart(cluster, n))  # type: ignore[misc]

    def fill() -> None:
        fill_disk(steps, cluster, primary)

    def alone() -> bool:
        return primary.alive and primary.core.leading is not None and not primary.core.leading.backups.sessions

    steps.when(alone, fill)
    return steps.end


def a_vote_fails_at_the_end(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A backup's disk is full when a branch is about to be prepared, and the primary loses power when it knows."""
    primary = serving_primary(cluster)
    process = a_backup(cluster, chance, primary) if primary is not None else None
    if primary is None or process is None or len(cluster.processes) < 3:
        return None
    steps, backup = Steps(cluster), process

    def prepares() -> bool:
        leading = primary.core.leading if primary.alive else None
        return bool(leading and leading.primary.decisions.branches._preparing)

    def fill() -> None:
        fill_disk(steps, cluster, backup)
        steps.when(failed, lambda: steps.after(chance.uniform(0.0005, 0.004), end_primary), every=0.0003)

    def failed() -> bool:
        return backup.core.failed is not None or not backup.alive

    def end_primary() -> None:
        steps.kill(primary.name, power=True)

    steps.when(prepares, fill, every=0.0003)
    return steps.end


def fill_disk(steps: Steps, cluster: Cluster, process: Process) -> None:
    """This node's disk is full until the end, when there is room again and the node is started, if it has ended."""
    steps.say(f"disk of {process.name} is full")
    works = cluster.lasting.change(process.disk.files, "full", True)

    def works_again() -> None:
        works()
        restart(cluster, process.name)

    steps.at_end(works_again)
