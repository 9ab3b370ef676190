"""Faults that belong together: what breaks second does so at the moment which the first has made, or waited for.

Independent faults meet such a moment in one seed of thousands. Each combination is aimed at a node by its part in the
cluster (the primary, a joiner, who renews the lease) and watches for its moment; it strikes through what any
environment can do, a kill, a stop, a cut, slowness, and never changes what a node itself holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.cluster import Cluster
from tests.simulation.fault_kinds import Ending, may_lose_disk, restart
from tests.simulation.loss_faults import holds_everything
from tests.simulation.operators import recover
from tests.simulation.process import Process
from tests.simulation.record_faults import recoverable

LOOK = 0.002
"""Seconds between two looks at whether the moment has come"""


class Steps:
    """The steps of one combination that is under way; when it ends, what its faults have changed is set back."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.over = False
        self._endings: list[Ending] = []

    def say(self, text: str) -> None:
        """One line of the transcript."""
        self.cluster.world.say("fault", text)

    def after(self, seconds: float, call: Ending) -> None:
        """Do this so much later, unless the combination has ended by then."""
        self.cluster.world.after(seconds, lambda: None if self.over else call())

    def when(self, condition: Callable[[], bool], call: Ending, every: float = LOOK) -> None:
        """Do this as soon as the condition holds."""
        if condition():
            call()
        else:
            self.after(every, lambda: self.when(condition, call, every))

    def at_end(self, ending: Ending) -> None:
        """Do this when the combination ends."""
        self._endings.append(ending)

    def end(self) -> None:
        """It is over; the last that began ends first."""
        self.over = True
        while self._endings:
            self._endings.pop()()

    def kill(self, name: str, power: bool) -> None:
        """End a process, if it runs; it comes back when the combination ends, or before."""
        if name in self.cluster.processes:
            self.say(f"{'power cut at' if power else 'SIGKILL of'} {name}")
            self.cluster.kill(name, power)
        self.at_end(lambda: restart(self.cluster, name))

    def cut(self, one: str, other: str, stall: bool, seconds: float) -> None:
        """Nothing gets through between these two for so long."""
        pairs = [(one, other), (other, one)]
        self.say(f"{'stalls' if stall else 'cuts'} {pairs}")
        for pair in pairs:
            self.cluster.network.cut(*pair, stall)
        self.at_end(lambda: self.cluster.network.heal(pairs))
        self.after(seconds, lambda: self.cluster.network.heal(pairs))

    def pause(self, process: Process, seconds: float) -> None:
        """Stop a process for so long."""
        self.say(f"SIGSTOP of {process.name}")
        process.pause()

        def go_on() -> None:
            if process.paused:
                self.say(f"SIGCONT of {process.name}")
                process.go_on()

        self.at_end(go_on)
        self.after(seconds, go_on)


def serving_primary(cluster: Cluster) -> Process | None:
    """The primary that the record names, if it runs and serves, and no operator is at work."""
    record = cluster.coordination.valid
    if record is None or record.primary is None or cluster.coordination.gone or cluster.kept_down:
        return None
    process = cluster.processes.get(record.primary.node)
    return process if process is not None and process.broker.active and not process.paused else None


def a_backup(cluster: Cluster, chance: random.Random, primary: Process) -> Process | None:
    """A running node that is not the primary."""
    others = [process for process in cluster.running() if process is not primary and not process.paused]
    return chance.choice(others) if others else None


# -- the combinations


def snapshot_not_durable(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A joiner has its snapshot whole in memory, its disk is slow to take it, and just then something ends.

    A connection, the joiner, the primary, or all of them.
    """
    primary = serving_primary(cluster)
    joiner = a_backup(cluster, chance, primary) if primary is not None else None
    if primary is None or joiner is None or not may_lose_disk(cluster, joiner.name):
        return None
    steps, name, how, power = Steps(cluster), joiner.name, chance.choice("ccckpa"), chance.random() < 0.5
    steps.say(f"loses the disk of {name}")
    cluster.kill(name, power=False)
    cluster.new_disk(name)
    disk = cluster.disks[name]
    slow = chance.choice(((0.4, 1.0), (1.0, 3.0)))
    steps.at_end(cluster.lasting.change(disk, "checkpoint_seconds", (0.0003, 0.003)))
    cluster.start(name)

    def copies(still: bool = True) -> bool:
        process, marked = cluster.processes.get(name), disk.base.durable.meta.resyncing
        return process is not None and marked and process.core.replica.resyncing is still

    def slower() -> None:
        steps.at_end(cluster.lasting.change(disk, "checkpoint_seconds", slow))
        steps.when(lambda: copies(False), lambda: steps.after(chance.choice((0.0, 0.01, 0.1)), strike))

    def strike() -> None:
        leader = cluster.coordination.valid
        named = leader.primary.node if leader is not None and leader.primary is not None else primary.name
        if how == "c" and named != name:
            steps.cut(name, named, stall=False, seconds=chance.choice((0.005, 0.05)))
        for victim in {"k": [name], "p": [named], "a": sorted(cluster.processes)}.get(how, []):
            steps.kill(victim, power)
            steps.after(chance.choice((0.05, 0.3)), lambda v=victim: restart(cluster, v))  # type: ignore[misc]

    steps.when(copies, slower)
    return steps.end


def primary_oversleeps(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A primary is stopped with an answer in its hands, and wakes when another has taken over."""
    primary = serving_primary(cluster)
    if primary is None or len(cluster.processes) < 2:
        return None
    steps, seconds = Steps(cluster), cluster.settings.lease_ttl * 1.2 + chance.choice((0.1, 0.2, 0.4))

    def telling() -> bool:
        return primary.alive and any(link.wire.telling for link in cluster.links if link.process is primary)

    steps.when(telling, lambda: steps.pause(primary, seconds), every=0.0003)
    return steps.end


def stopped_for_a_deadline(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A node is stopped for about as long as a link may be silent, four times; its peers have beaten meanwhile."""
    process = serving_primary(cluster)
    if process is None or len(cluster.processes) < 2:
        return None
    steps, deadline, at = Steps(cluster), cluster.settings.link_deadline, 0.0

    def stop(seconds: float) -> None:
        if process.alive and not process.paused:
            steps.pause(process, seconds)

    for _ in range(4):
        seconds = deadline * chance.uniform(0.9, 1.1)
        steps.after(at, lambda s=seconds: stop(s))  # type: ignore[misc]
        at += seconds + chance.uniform(0.05, 0.3)
    return steps.end


def renewal_told_late(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The primary is told late that its lease was renewed, and then cannot reach the coordination store any more."""
    primary = serving_primary(cluster)
    if primary is None or len(cluster.processes) < 2:
        return None
    steps, store, name = Steps(cluster), cluster.coordination, primary.name
    steps.say(f"the coordination store answers {name} late")
    store.late[name] = chance.uniform(0.2, 0.45)
    steps.at_end(lambda: store.late.pop(name, None) and None)

    def cut_off() -> None:
        steps.say(f"cuts {name} off from the coordination store")
        steps.at_end(cluster.lasting.hold(store.cut_off, name))

    steps.after(chance.uniform(0.05, 0.4), cut_off)
    return steps.end


def older_record_of_another_generation(cluster: Cluster, chance: random.Random) -> Ending | None:
    """After a failover an operator puts a copy of the record from before it in its place, and starts all nodes."""
    primary, store = serving_primary(cluster), cluster.coordination
    if primary is None or len(cluster.processes) < 2 or store.valid is None:
        return None
    steps, began = Steps(cluster), store.valid.generation
    steps.kill(primary.name, power=False)
    steps.after(0.1, lambda: restart(cluster, primary.name))

    def moved_on() -> bool:
        seen = [disk.last_durable()[0] for disk in cluster.disks.values()]
        known = [process.core.record for process in cluster.running()]
        versions = [record.version if record is not None else 0 for record in known]
        copies = [r for r in store.history if r.generation < min(seen) and r.version < min(versions, default=0)]
        return min(seen) > began and bool(copies) and recoverable(cluster)

    def put_back() -> None:
        oldest = min(disk.last_durable()[0] for disk in cluster.disks.values())
        copy = chance.choice([each for each in store.history if each.generation < oldest])
        steps.say(f"version {copy.version} of the coordination record is put in its place, and all are started anew")
        store.lose(copy)
        steps.at_end(lambda: recover(cluster))
        for name in sorted(cluster.processes):
            cluster.kill(name, power=False)
        for name in sorted(cluster.disks):
            steps.after(chance.uniform(0.0, 0.1), lambda n=name: restart(cluster, n))  # type: ignore[misc]

    steps.when(moved_on, put_back, every=0.01)
    return steps.end


def forced_while_another_is_promoted(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The primary's disk fails, so it leaves; an operator forces one node while another takes over by itself."""
    primary = serving_primary(cluster)
    process = a_backup(cluster, chance, primary) if primary is not None else None
    if primary is None or process is None:
        return None
    steps, forced = Steps(cluster), process
    steps.say(f"disk of {primary.name} is full")
    files = primary.disk.files
    works = cluster.lasting.change(files, "full", True)

    def works_again() -> None:
        works()
        restart(cluster, primary.name)

    steps.at_end(works_again)
    accepted = False

    def attempt() -> None:
        nonlocal accepted
        if not accepted and not steps.over and holds_everything(cluster, forced):
            accepted = forced.core.promote(True) is None
            if accepted:
                cluster.world.say("operator", f"forces {forced.name}")

    def again() -> bool:
        if forced.alive and not accepted:
            forced.operate(attempt)
        return accepted or not forced.alive

    steps.when(again, lambda: None, every=0.003)
    return steps.end


def joiner_while_commits_wait(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A node comes back while transactions are closed and not decided, since another ready member is stopped."""
    primary = serving_primary(cluster)
    record = cluster.coordination.valid
    if primary is None or record is None or len(cluster.processes) < 3:
        return None
    backups = [member.node for member in record.ready if member.node in cluster.processes]
    backups = [name for name in backups if name != primary.name and not cluster.processes[name].paused]
    if len(backups) < 2:
        return None
    steps, (joiner, stopped) = Steps(cluster), chance.sample(backups, 2)
    steps.kill(joiner, power=False)

    def out() -> bool:
        now = cluster.coordination.valid
        return now is not None and joiner not in {member.node for member in now.ready}

    def stop() -> None:
        process = cluster.processes.get(stopped)
        if process is not None and not process.paused:
            steps.pause(process, chance.uniform(0.3, 0.6))
        steps.after(chance.uniform(0.02, 0.1), lambda: restart(cluster, joiner))

    steps.when(out, stop)
    return steps.end


def clock_jumps_at_a_cut(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The primary is cut off from the coordination store and from a backup, and just then that one's clock jumps."""
    primary, record = serving_primary(cluster), cluster.coordination.valid
    process = a_backup(cluster, chance, primary) if primary is not None else None
    if primary is None or process is None or record is None or process.disk.member not in record.ready:
        return None
    steps = Steps(cluster)
    steps.say(f"cuts {primary.name} off from the coordination store")
    steps.at_end(cluster.lasting.hold(cluster.coordination.cut_off, primary.name))
    steps.cut(primary.name, process.name, chance.random() < 0.5, 1.0)

    def jump() -> None:
        steps.say(f"clock of {process.name} jumps")
        process.clock.skipped += cluster.settings.lease_ttl * chance.uniform(1.0, 2.0)

    steps.after(chance.uniform(0.01, 0.1), jump)
    return steps.end
