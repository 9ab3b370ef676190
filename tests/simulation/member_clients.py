"""Operators who add nodes to the cluster, remove them and move them, at any node and under load; and what they did."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ha.membership.member_changes import UNKNOWN
from ha.membership.members import ADD, MOVE, REMOVE, MemberChange

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster, Process

PAUSE = 0.01, 0.12
FIRST_PORT = 10_000


class MemberOperator:
    """``names``: all nodes that there may ever be. ``waiting``: what is not answered, with the process that was asked;
    ``answers``: how many there were, by what was asked and whether it was done."""

    def __init__(self, cluster: Cluster, names: str, number: int) -> None:
        self.waiting: dict[int, Process] = {}
        self.answers: Counter[tuple[str, str]] = Counter()
        self.stopping = False
        self._cluster = cluster
        self._names = names
        self._number = number
        self._chance = cluster.world.chance(f"members/{number}")
        self._asked = 0
        self._later()

    def _later(self) -> None:
        self._cluster.world.after(self._chance.uniform(*PAUSE), self._act)

    def _act(self) -> None:
        if self.stopping:
            return
        there = [process for process in self._cluster.running() if process.failed is None]
        if there and not self._cluster.coordination.gone:
            process = self._chance.choice(there)
            self._prepare()
            self._ask(process, self._drawn())
        self._later()

    def _prepare(self) -> None:
        """Start a node that is down, or come with a new disk where one was removed, or with the old one."""
        cluster, chance = self._cluster, self._chance
        name = chance.choice(self._names)
        if name not in cluster.disks:
            cluster.install(name)
            return
        outside = name not in cluster.members()
        if outside and chance.random() < 0.3:
            if name in cluster.processes:
                cluster.kill(name, power=False)
            else:
                cluster.world.say("operator", f"discards the store of {name}, which was removed")
                cluster.new_disk(name)
        elif name not in cluster.processes and chance.random() < 0.5:
            cluster.start(name)

    def _drawn(self) -> MemberChange:
        """Mostly what can be: to add who is none, to remove who is one."""
        chance, members = self._chance, self._cluster.members()
        others = sorted(set(self._names) - members)
        self._asked += 1
        port = FIRST_PORT + 1000 * self._number + self._asked
        what = chance.random()
        if what < 0.45 and others:
            name = chance.choice(others)
            return MemberChange(ADD, name, name, port)
        if what < 0.8:
            return MemberChange(REMOVE, chance.choice(sorted(members)))
        name = chance.choice(self._names)
        return MemberChange(MOVE if what < 0.95 else ADD, name, name, port)

    def _ask(self, process: Process, change: MemberChange) -> None:
        cluster, number = self._cluster, self._asked
        record = cluster.coordination.record
        before = record.version if record is not None else 0
        self.waiting[number] = process

        def told(error: str | None) -> None:
            cluster.world.say(process.name, f"answers {change}: {error}")
            del self.waiting[number]
            done = "unknown" if error == UNKNOWN else "refused" if error is not None else "done"
            self.answers[change.kind, done] += 1
            cluster.truth.calls("member_answered", process, change, before, error)

        cluster.world.say("operator", f"asks {process.name}: {change}")
        process.operate(lambda: process.core.change_members(change, told))
