"""One node cannot change the record, and that does not end: what the others do meanwhile is judged."""

from __future__ import annotations

import random
from collections.abc import Callable

from ha.membership.belonging import needed
from ha.membership.node_state import ACTIVE
from tests.simulation.book import OK
from tests.simulation.cluster import Cluster
from tests.simulation.fault_kinds import cut_ways

TAKE_OVER_SECONDS = 20.0
COMMITS = 3
"""So many come about beside a node without the store"""
Until = Callable[[Callable[[], bool], float, str], None]
"""Turns until a condition holds. Raises Broken once that has taken so many seconds; the last says what is waited for"""


class Storeless:
    """In a cluster in which all else is well."""

    def __init__(self, cluster: Cluster, until: Until) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._until = until

    def live_without(self, chance: random.Random) -> None:
        """One node cannot change the record, and that does not end. Another serves and commits (P12), also if a
        primary dies now, or the links of a backup that cannot even read the record are down for a moment.

        What is judged only when all faults have ended never sees whom a node keeps from acting that is well otherwise.
        A cluster of one lives without nothing.
        """
        if len(self._cluster.members()) < 2:
            return
        store, links = self._cluster.coordination, chance.random() < 0.5
        without = chance.choice([name for name in sorted(self._cluster.disks) if not links or name != self._primary()])
        broken = store.cut_off if links or chance.random() < 0.5 else store.read_only
        self._world.say("fault", f"{without} cannot {'reach' if broken is store.cut_off else 'change'} the record")
        broken.add(without)
        self._world.run(self._world.now + chance.uniform(0.0, 2.0))
        (self._break_links if links else self._kill_beside)(without, chance)
        self._until(lambda: serves_beside(self._cluster, without), TAKE_OVER_SECONDS, f"primary beside {without}")
        self._cluster.quiet = False
        book, least = self._cluster.book, self._cluster.book.count(OK) + COMMITS
        self._until(
            lambda: book.count(OK) >= least or not enough_beside(self._cluster),
            TAKE_OVER_SECONDS, f"{COMMITS} commits beside {without}",
        )  # fmt: skip
        broken.discard(without)

    def _kill_beside(self, without: str, chance: random.Random) -> None:
        """The primary dies, if it is another and there is one more that may follow it."""
        store = self._cluster.coordination
        self._until(lambda: not store.under_way, TAKE_OVER_SECONDS, "moment without a change of the record")
        record, primary = store.record, self._primary()
        assert record is not None
        others = {member.node for member in record.ready} - {primary, without}
        if primary in self._cluster.processes.keys() - {without} and others & self._cluster.processes.keys():
            self._world.say("fault", f"SIGKILL of {primary}")
            self._cluster.kill(primary, power=False)

    def _primary(self) -> str:
        """By the record."""
        record = self._cluster.coordination.record
        return record.primary.node if record is not None and record.primary is not None else ""

    def _break_links(self, name: str, chance: random.Random) -> None:
        """The links of this node break, and come back. At times nothing is under way by then: whatever comes next to
        be acknowledged comes behind all that this node asks for."""
        self._cluster.quiet = chance.random() < 0.5
        self._world.run(self._world.now + chance.uniform(0.5, 2.5))
        pairs = [pair for other in self._cluster.disks if other != name for pair in ((name, other), (other, name))]
        self._world.say("fault", f"the links of {name} break")
        heal = cut_ways(self._cluster, pairs, stall=False)
        self._world.run(self._world.now + chance.uniform(0.0, chance.choice((0.2, 2.0))))
        heal()
        self._world.run(self._world.now + chance.uniform(1.0, 3.0))


def serves_beside(cluster: Cluster, without: str) -> bool:
    """Whether a node serves that is not ``without``, and takes commits if as many as must be ready can be.

    Who cannot read the record does not know whom to follow when the primary has changed. So a primary to which too few
    others are left refuses what it would have to confirm, and that is as it must be.
    """
    enough = enough_beside(cluster)
    active = [process for process in cluster.running() if process.core.state == ACTIVE]
    primaries = [(process.name, process.core.leading and process.core.leading.primary) for process in active]
    return any(
        name != without and primary is not None and not (enough and primary.decisions.below_min_ready)
        for name, primary in primaries
    )


def enough_beside(cluster: Cluster) -> bool:
    """Whether as many as must be ready can be, without those that cannot read the record."""
    record, members = cluster.coordination.record, cluster.members()
    least = cluster.settings.min_ready if record is None else needed(record, cluster.settings)
    return sum(each.name in members - cluster.coordination.cut_off for each in cluster.running()) >= least
