"""One seed of a cluster that is upgraded from a release without cluster calls to one with them, and set back meanwhile.

Calls stand for whatever is new: they have a feature, messages that only nodes that name it can read, steps that only
those can apply, and a flag, after which no node without them is attached any more. Operators make calls at nodes of the
newer release, and raise the flag, all the time: each must be refused until every node knows them.
"""

from __future__ import annotations

import random

from ha.calls.answers import ALL
from ha.calls.initiation import NewCall
from ha.membership.node_state import ACTIVE, READY
from tests.simulation.calls_run import CallsRun
from tests.simulation.faults import Fault, Faults
from tests.simulation.releases import Release
from tests.simulation.run import HEAL_SECONDS, LOAD_SECONDS
from tests.simulation.surroundings import INITIAL, Setting
from tests.simulation.truth import Broken
from tests.simulation.upgrades import Upgrades
from txobserver.actions import FLAG, Action, ActionRegistry
from txobserver.calls import CALLS, CALLS_FEATURE, ID_BYTES
from txobserver.configuration import OPERATIONS

ACTIONS = ActionRegistry(
    [Action("set", 1, Setting), Action("tell", 1, Setting, undone=False), Action(FLAG, 1, Setting, undone=False)]
)
NEW = Release("that with calls", features=frozenset({CALLS_FEATURE}), actions=ACTIONS)
OLD = Release("that without calls", OPERATIONS - CALLS, frozenset())
FIRST = (NEW, OLD, OLD)
LATER = (NEW, NEW, NEW, OLD)
ASK_SECONDS = 0.1, 0.5
UPGRADED_SECONDS = 20.0
STAYS_OUT_SECONDS = 5.0


class RollingRun(CallsRun):
    """As ``CallsRun``. ``asked``: how often the flag was to be raised."""

    def __init__(self, seed: int, schedule: list[Fault] | None = None, transcript: bool = False) -> None:
        self._operator = random.Random(f"{seed}/rolling")
        self._ended = False
        super().__init__(seed, schedule, transcript)
        self.asked = 0
        self.upgrades = Upgrades(self.cluster, self._operator, LATER, NEW)
        self.upgrades.plan(LOAD_SECONDS)
        self._later()

    def releases(self, names: list[str]) -> dict[str, Release]:
        """What each node runs at first."""
        return {name: self._operator.choice(FIRST) for name in names}

    def _later(self) -> None:
        self.world.after(self._operator.uniform(*ASK_SECONDS), self._raise)

    def _raise(self) -> None:
        """Ask a node of the newer release to raise the flag."""
        there = [each for each in self.cluster.running() if each.failed is None and each.release is NEW]
        if self.raised or self._ended:
            return
        if there:
            self.asked += 1
            process = self._operator.choice(there)
            core, call_id = process.core, (b"flag %d" % self.asked).ljust(ID_BYTES, b"\0")
            new = NewCall(call_id, FLAG, 1, CALLS_FEATURE, INITIAL, 1)
            process.operate(lambda: core.calls.call(new, ALL, core.now + 1.0, lambda answer: None))
        self._later()

    @property
    def raised(self) -> bool:
        """Whether some node has applied the call that raises the flag."""
        return any(each.core.replica.contents.calls.names_of(FLAG) for each in self.cluster.running())

    def _heal(self, faults: Faults) -> None:
        """All are upgraded; then the flag can be raised (P12), and a node that is set back all the same stays out."""
        self.upgrades.upgrade_all()
        super()._heal(faults)
        self._until(lambda: self.raised, UPGRADED_SECONDS, "flag, though every node knows calls now")
        self._ended = True
        backups = [each.name for each in self.cluster.running() if each.core.leading is None]
        if backups:
            self._set_back(self._operator.choice(backups))
        self._until(self._calm, HEAL_SECONDS, "every node ready, though all are upgraded again")

    def _set_back(self, name: str) -> None:
        """With its store, and then with a new one: it gets nothing that it does not know (``Versions``)."""
        cluster = self.cluster
        cluster.releases[name] = OLD
        cluster.world.say("operator", f"sets {name} back, though the flag is raised")
        self._again(name, self._operator.choice((False, True)))
        cluster.world.run(cluster.world.now + STAYS_OUT_SECONDS)
        process = cluster.processes.get(name)
        if process is not None and process.core.state in (READY, ACTIVE):
            raise Broken("P12", f"{name} is {process.core.state}, and does not know calls, whose flag is raised")
        cluster.releases[name] = NEW
        self._again(name, False)

    def _again(self, name: str, with_new_disk: bool) -> None:
        if name in self.cluster.processes:
            self.cluster.kill(name, power=False)
        if with_new_disk:
            self.cluster.new_disk(name)
        self.cluster.start(name)
