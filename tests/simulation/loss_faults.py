"""When those who could go on are gone: an operator's ``promote --accept-data-loss``, or ``recover --accept-missing``.

Either nothing is lost by it (``force``), or what is lost is accepted, and the truth is cut back by that (``Losses``).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.cluster import Cluster
from tests.simulation.fault_kinds import Ending, cut_ways
from tests.simulation.operators import recover_accepting, start_all
from tests.simulation.process import Process
from txobserver.configuration import DECLARE_QUEUE
from txobserver.events import Configure

PATIENCE = 3.0
"""Seconds for which an operator tries to force a node"""


class Forcing:
    """An operator tries ``promote --accept-data-loss`` at a node, while others are kept down, until it is taken.

    It may come to nothing: another node becomes primary meanwhile, or the record is lost.
    """

    def __init__(self, cluster: Cluster, name: str, down: set[str], may_be: Callable[[Process], bool]) -> None:
        self._cluster = cluster
        self._name = name
        self._may_be = may_be
        self._until = cluster.world.now + PATIENCE
        self._before = cluster.coordination.valid
        self._asked_until = 0.0
        cluster.kept_down |= down
        self._down = down
        self._again()

    def _again(self) -> None:
        world, record = self._cluster.world, self._cluster.coordination.valid
        if record is None or self._before is None or record.primary != self._before.primary:
            self._end()
            return
        process = self._cluster.processes.get(self._name)
        if world.now >= self._until:
            if not self._may_still_land(process):
                self._end()
                return
        elif process is not None and world.now >= self._asked_until:
            process.operate(lambda: self._ask(process))
        world.after(0.02, self._again)

    def _may_still_land(self, process: Process | None) -> bool:
        """Whether the node is still at what it was told, so that the others must not be started yet (seed 111176)."""
        candidate = process.core.candidate if process is not None else None
        asks = candidate is not None and (candidate._forcing_at is not None or candidate.in_flight is not None)
        return asks or self._cluster.coordination.under_way

    def _ask(self, process: Process) -> None:
        if self._may_be(process) and process.core.promote(True) is None:
            self._cluster.world.say("operator", f"forces {process.name}")
            self._asked_until = self._cluster.world.now + 0.5

    def _end(self) -> None:
        self._cluster.truth.losses.granted.clear()
        self._cluster.kept_down -= self._down
        start_all(self._cluster)


def force(cluster: Cluster, chance: random.Random) -> Ending | None:
    """The primary is gone, and an operator tries ``promote --accept-data-loss`` at another node until it is taken.

    Only where that node holds everything that has passed the commit point when it is asked: what is lost in spite of
    that, no operator has accepted. It may be refused in the end, as the record was another's meanwhile. Mostly it is a
    node that has just been taken out of the ready set: a member of it would become primary by itself.
    """

    def strike(name: str, ready: set[str]) -> None:
        _power_cuts(cluster, ready)
        Forcing(cluster, name, ready, lambda process: holds_everything(cluster, process))

    if chance.random() < 0.7:
        return _left_behind(cluster, chance, strike, lost=False)
    record = cluster.coordination.valid
    primary = record.primary.node if record is not None and record.primary is not None else ""
    others = sorted(set(cluster.processes) - {primary})
    if not others or primary not in cluster.processes or cluster.coordination.gone or cluster.kept_down:
        return None
    cluster.world.say("fault", f"power cut at {primary}")
    cluster.kill(primary, power=True)
    Forcing(cluster, chance.choice(others), {primary}, lambda process: holds_everything(cluster, process))
    return lambda: None


def holds_everything(cluster: Cluster, process: Process) -> bool:
    """Whether this node's disk leads to all that has passed the commit point."""
    truth = cluster.truth
    end = truth.reference.end
    return end > 0 and process.disk.holds(truth.generation_at(end), end)


def force_with_loss(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A node is cut off, the others go on without it, and are gone; an operator forces the one that is left."""

    def strike(name: str, ready: set[str]) -> None:
        _power_cuts(cluster, ready)
        Forcing(cluster, name, ready, grant)

    def grant(process: Process) -> bool:
        cluster.truth.losses.granted = {process.disk.member}
        return _may_go_on(cluster, process)

    return _left_behind(cluster, chance, strike, lost=True)


def _power_cuts(cluster: Cluster, names: set[str]) -> None:
    for each in sorted(names & set(cluster.processes)):
        cluster.world.say("fault", f"power cut at {each}")
        cluster.kill(each, power=True)


def recover_with_loss(cluster: Cluster, chance: random.Random) -> Ending | None:
    """A node is cut off, the others go on without it and lose their disks; the record may be gone, too.

    An operator writes a record from what is left, and accepts that the lost stores may have held something.
    """
    power, record_too = chance.random() < 0.5, chance.random() < 0.5

    def strike(name: str, ready: set[str]) -> None:
        for each in sorted(cluster.processes):
            cluster.kill(each, power)
        for each in sorted(ready):
            cluster.world.say("fault", f"loses the disk of {each}")
            cluster.new_disk(each)
        if record_too:
            cluster.world.say("fault", "the coordination record is lost")
            cluster.coordination.lose(None)
        cluster.kept_down |= set(cluster.disks)
        recover_accepting(cluster)

    return _left_behind(cluster, chance, strike, lost=True)


def _left_behind(
    cluster: Cluster, chance: random.Random, strike: Callable[[str, set[str]], None], lost: bool
) -> Ending | None:
    """Cut a backup off; when the others are ready without it, they are struck, unless the fault ends before.

    ``lost``: not before they have gone on without it. Else at once, before they do.
    """
    record = cluster.coordination.valid
    if record is None or record.primary is None or cluster.coordination.gone or cluster.kept_down:
        return None
    names = sorted(name for name in cluster.processes if name != record.primary.node)
    if not names:
        return None
    name = chance.choice(names)
    others = [other for other in sorted(cluster.disks) if other != name]
    pairs = [(name, other) for other in others] + [(other, name) for other in others]
    cluster.world.say("fault", f"cuts {name} off")
    heal = cut_ways(cluster, pairs, stall=False)
    reach = cluster.lasting.hold(cluster.coordination.cut_off, name)
    over = False

    def ending() -> None:
        nonlocal over
        if not over:
            reach()
            heal()
        over = True

    def due() -> None:
        record = cluster.coordination.valid
        ready = {member.node for member in record.ready} if record is not None else {name}
        process = cluster.processes.get(name)
        if over or cluster.coordination.gone or cluster.kept_down:
            return
        there = process is not None and name not in ready and _may_go_on(cluster, process)
        if process is not None and there and holds_everything(cluster, process) is not lost:
            strike(name, ready)
            ending()
            return
        cluster.world.after(0.05 if lost else 0.005, due)

    cluster.world.after(chance.choice((0.2, 0.3, 0.5)) if lost else 0.05, due)
    return ending


def _may_go_on(cluster: Cluster, process: Process) -> bool:
    """Whether an operator would go on from this node: its store is whole, and has the queues in it.

    Not from one that holds what an operator has accepted to be lost: docs/operations.md says what to do with it.
    """
    truth, applied = cluster.truth, process.core.replica.applied
    if not process.core.replica.whole or truth.is_lost(applied):
        return False
    there = declared(cluster)
    return applied.sequence >= there and process.disk.holds(truth.generation_at(there), there)


def declared(cluster: Cluster) -> int:
    """Where in the one stream the run's own queues have been declared."""
    exempt = cluster.book.exempt
    return max(
        sequence
        for sequence, (_, event) in enumerate(cluster.truth.canonical, 1)
        if isinstance(event, Configure) and event.operation == DECLARE_QUEUE and event.name not in exempt
    )


