"""What breaks: each kind a class, each single fault one entry of a schedule that is drawn before the run begins.

A fault begins at a time and mostly ends after a while. Its choices come from its own source of chance, so that a
schedule with one entry less is the same schedule otherwise. Which kinds a run mixes, and how often they strike, is
drawn per seed (swarm): a run in which everything breaks all the time never gets far enough to break in the rare ways.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation import combinations as together
from tests.simulation import disk_combinations as at_disk
from tests.simulation import fault_kinds as node
from tests.simulation import loss_faults as loss
from tests.simulation import record_faults as record
from tests.simulation.cluster import Cluster
from tests.simulation.fault_kinds import Ending
from tests.simulation.world import World

Kind = Callable[[Cluster, random.Random], Ending | None]
KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        *(node.kill, node.power_cut, node.kill_all, node.pause, node.clients_dropped),
        *(node.cut, node.loss, node.slow_network, node.clock_jump, node.wall_clock_jump),
        *(node.slow_disk, node.full_disk, node.failing_sync, node.read_error, node.lost_disk, node.flipped_bit),
        *(node.slow_checkpoints, node.failing_checkpoint),
        *(record.stalled_store, record.slow_store, record.unreliable_store, record.repeating_store),
        *(record.lost_record, record.older_record),
        *(record.leave, record.handover, loss.force, record.stop_and_start, record.discard),
    )
}
LOSSES: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        *(loss.force_with_loss, loss.recover_with_loss),
        *(record.empty_node_first, record.killed_in_checkpoint),
    )
}
"""In few seeds, so that the others show that nothing is lost"""
COPIES = {"killed_in_checkpoint", "copy_in_memory_alone", "slow_joiner", "copied_again_and_again"}
"""Runs with one of these keep little of the log, so that a node with a new disk is copied to"""
COUNTED_BY_RESULT = {"force", "force_with_loss", "recover_with_loss"}
"""They count when a node was forced, or something was lost (see ``Run``)"""
SHARES = {
    "force": 0.1,
    "force_with_loss": 0.17,
    "recover_with_loss": 0.13,
    "empty_node_first": 0.08,
    "killed_in_checkpoint": 0.06,
    "": 0.46,
}
"""Of seeds that have one of such a kind, and of those that have none"""

WEIGHTS: dict[Kind, int] = {
    together.snapshot_not_durable: 3,
    together.joiner_while_commits_wait: 3,
    together.older_record_of_another_generation: 2,
    together.forced_while_another_is_promoted: 2,
    together.primary_oversleeps: 2,
    together.stopped_for_a_deadline: 2,
    together.renewal_told_late: 2,
    together.clock_jumps_at_a_cut: 2,
    at_disk.copy_in_memory_alone: 3,
    at_disk.slow_joiner: 2,
    at_disk.copied_again_and_again: 3,
    at_disk.damaged_while_serving: 2,
    at_disk.leaves_to_nobody: 2,
    at_disk.a_vote_fails_at_the_end: 3,
}
"""How often each combination is drawn: the more often, the less often its moment comes"""
COMBINED_FROM = 1_000_000_000
"""Seeds from this one on have a combination each, so that the rarest moments come more often"""
COMBINATIONS: dict[str, Kind] = {kind.__name__: kind for kind in WEIGHTS}


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
    """A schedule for a run of this length: independent faults, and at most one that loses something, or a combination.

    Some combinations strike alone.
    """
    combined = world.seed >= COMBINED_FROM
    faults, losses, chance = independent(world, seconds), world.chance("losses"), world.chance("combinations")
    rare = losses.choices(list(SHARES), list(SHARES.values()))[0]
    if rare and not combined:
        return [*faults, Fault(losses.uniform(0.05, seconds / 2), rare, seconds, len(faults))]
    if chance.random() < 0.1 and not combined:
        return faults
    (kind,), at = chance.choices(list(COMBINATIONS), list(WEIGHTS.values())), chance.uniform(0.05, 0.3)
    combination = Fault(at, kind, seconds - at, len(faults))
    return [combination] if chance.random() < 0.4 else [*faults, combination]


def independent(world: World, seconds: float) -> list[Fault]:
    """Faults of which each strikes by itself, and none loses anything."""
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
        self.struck: Counter[str] = Counter()
        self.hits = 0
        self._cluster = cluster
        self._world = cluster.world
        self._endings: dict[int, Ending] = {}
        for fault in schedule:
            self._world.after(fault.at, lambda f=fault: self._strike(f))  # type: ignore[misc]

    def _strike(self, fault: Fault) -> None:
        chance = self._world.chance(f"fault/{fault.number}/{fault.kind}")
        ending = (KINDS | LOSSES | COMBINATIONS)[fault.kind](self._cluster, chance)
        if ending is None:
            return
        if fault.kind not in COUNTED_BY_RESULT:
            self.struck[fault.kind] += 1
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
