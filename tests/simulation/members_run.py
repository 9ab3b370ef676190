"""One seed of a cluster whose members are added, removed and moved, under load and faults that lose nothing.

It begins with one to three nodes, whose files list each other, and has up to five. A node that is added later has a
file that lists none: it finds the others through the record. What of the record is lost is lost to the members as
well, so no fault takes the record away.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ha.calls.answers import Answer
from ha.calls.initiation import NewCall
from ha.membership.belonging import membership_of
from ha.membership.members import ADD, MemberChange
from ha.settings import Settings
from tests.simulation.clients import Consumer, Feeder, Keeper, Worker
from tests.simulation.cluster import NAMES, Cluster
from tests.simulation.coordinators import Coordinator
from tests.simulation.fault_kinds import restart
from tests.simulation.faults import Fault, Faults, independent
from tests.simulation.member_checkers import Members
from tests.simulation.member_clients import MemberOperator
from tests.simulation.process import PORT
from tests.simulation.run import HEAL_SECONDS, LOAD_SECONDS, Run
from txobserver.actions import FLAG, MEMBERS_FLAG, RaiseFlag

MOST = NAMES[:5]
OPERATORS = 2
TAKES_THE_RECORD = {"lost_record", "older_record", "discard", "force"}
GROWN_SECONDS = 30.0


class GrowingCluster(Cluster):
    """``founding``: the nodes of the beginning, which their own files list. An added node's file lists none."""

    _founding: tuple[str, ...] = ()

    @property
    def founding(self) -> tuple[str, ...]:
        """As above."""
        self._founding = self._founding or tuple(self.disks)
        return self._founding

    def listed_by(self, name: str) -> list[str]:
        """As above."""
        return list(self.founding) if name in self.founding else [name]

    def install(self, name: str) -> None:
        """A new machine, on which a node is started."""
        self.world.say("operator", f"installs {name}")
        self.clocks[name] = self.new_clock()
        self.new_disk(name)
        self.start(name)


class MembersRun(Run):
    """As ``Run``, with few other clients. ``changes``: how often the members have been changed."""

    kinds = ((Feeder, 1), (Worker, 1), (Consumer, 3), (Keeper, 1), (Coordinator, 1))
    of_cluster = GrowingCluster
    cluster: GrowingCluster

    def __init__(self, seed: int, schedule: list[Fault] | None = None, transcript: bool = False) -> None:
        self.operators: list[MemberOperator] = []
        super().__init__(seed, schedule, transcript)
        self._checker = next(each for each in self.cluster.truth.checkers if isinstance(each, Members))

    @property
    def changes(self) -> int:
        """As the record has them."""
        return self._checker.changes

    def size_of(self, size: int) -> int:
        """One node, as often as not."""
        return self.world.chance("members/size").choice((1, 1, 2, 3))

    def drawn(self) -> list[Fault]:
        """Those that lose nothing, and leave the record alone; in half of the seeds, changes of it go astray."""
        faults = [each for each in independent(self.world, LOAD_SECONDS) if each.kind not in TAKES_THE_RECORD]
        chance = self.world.chance("members/faults")
        if chance.random() < 0.5:
            faults.append(Fault(chance.uniform(0.05, 0.6), "unreliable_store", 0.5, len(faults) + 1000))
        return faults

    def adapted(self, settings: Settings) -> Settings:
        """In most runs ``min_ready`` follows the members; in the others, the files of all nodes say 1."""
        follows = self.world.chance("members/follow").random() < 0.85
        return replace(settings, min_ready=1, follow_members=follows)

    def _declare(self) -> None:
        """The flag is raised first; before the first change, the files say who is a member."""
        super()._declare()
        told: list[Answer] = []
        process = next(each for each in self.cluster.running() if each.core.leading is not None)
        call = NewCall(b"raise the flag..", FLAG, 1, MEMBERS_FLAG, msgspec.msgpack.encode(RaiseFlag()), 1)
        core = process.core
        process.operate(lambda: core.calls.call(call, 1, core.now + 5.0, told.append))
        self._until(lambda: bool(told), 10.0, "flag")
        self.operators = [MemberOperator(self.cluster, MOST, number) for number in range(OPERATORS)]

    def _heal(self, faults: Faults) -> None:
        for operator in self.operators:
            operator.stopping = True
        super()._heal(faults)

    def _calm(self) -> bool:
        """A member whose store was removed before its name was added again is refused until that is discarded."""
        cluster = self.cluster
        membership = membership_of(cluster.coordination.record)
        for node in membership.nodes if membership is not None else ():
            if node.name not in cluster.disks:
                cluster.install(node.name)
            elif cluster.disks[node.name].member in membership.removed:
                cluster.world.say("operator", f"discards the store of {node.name}, which was removed")
                if node.name in cluster.processes:
                    cluster.kill(node.name, power=False)
                cluster.new_disk(node.name)
        return super()._calm()

    def _drain(self) -> None:
        """The removed are refused or gone, every operator is answered, and the cluster can still be changed (P12)."""
        super()._drain()
        running = self.cluster.running()
        self._until(
            lambda: not any(process in running for each in self.operators for process in each.waiting.values()),
            HEAL_SECONDS,
            "answer to each who asked for a change of the members",
        )
        self._bring_all_back()
        for name in sorted(set(self.cluster.processes) - self.cluster.members()):
            self.cluster.kill(name, power=False)  # whose part in what the checkers compare has ended
        self._until(self._flagged, HEAL_SECONDS, "end of the call that raises the flag")

    def _flagged(self) -> bool:
        """Each member has run all calls; one that has just come is behind."""
        nodes = [process.core.calls for process in self.cluster.running()]
        return all(each.runner.at_head() and not each.hands.busy and not each.initiator.waiting for each in nodes)

    def _bring_all_back(self) -> None:
        """Each node of the beginning that was removed gets a new store, is added again, and becomes ready."""
        cluster = self.cluster
        if membership_of(cluster.coordination.record) is None:
            return
        for number, name in enumerate(sorted(set(cluster.founding) - cluster.members())):
            if name in cluster.processes:
                cluster.kill(name, power=False)
            cluster.new_disk(name)
            restart(cluster, name)
            self._add(name, PORT + 1 + number)
        self._until(cluster.all_ready, GROWN_SECONDS, "node ready again that was removed and has a new store")

    def _add(self, name: str, port: int) -> None:
        told: list[str | None] = []
        process = next(each for each in self.cluster.running() if each.core.leading is not None)
        process.operate(lambda: process.core.change_members(MemberChange(ADD, name, name, port), told.append))
        self._until(lambda: bool(told), GROWN_SECONDS, "answer to who adds a node")
        assert told == [None], told
