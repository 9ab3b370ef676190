"""The faults of processes, networks and clocks, one small class for each kind, and the registry of all kinds."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import abstractmethod

from python_tests.harness.stress.clock_faults import Clock, ClockJump
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.disk_faults import DiskFull, FailedSync, SlowDisk
from python_tests.harness.stress.fault import END_SECONDS, NodeFault, both_ways, process_state
from python_tests.harness.stress.network import CLIENTS, CUT, Impairment, Way
from python_tests.harness.stress.record_faults import LostRecord
from python_tests.harness.stress.store_faults import STORE_FAULTS
from python_tests.harness.waiting import wait_until

READY_SECONDS = 30.0


class Kill(NodeFault):
    kind = "kill"
    what = "SIGKILL of a node, started again later"

    def begin(self) -> str:
        self._killed = self.kill([self.target])
        return f"SIGKILL of {self.target}"

    def heal(self) -> bool:
        self.start([self.target])
        return self._killed == 1


class KillAll(NodeFault):
    kind = "all"
    what = "SIGKILL of all nodes at once, started again later"
    cluster_wide = True

    def begin(self) -> str:
        self._killed = self.kill(self.cluster.names)
        return "SIGKILL of all nodes"

    def heal(self) -> bool:
        self.start(self.cluster.names)
        return self._killed == self.cluster.count


class Stop(NodeFault):
    kind = "stop"
    what = "SIGSTOP of a node, SIGCONT later"

    def begin(self) -> str:
        self._pid = self.cluster.pid(self.target)
        self._frozen = contextlib.ExitStack()
        self._frozen.enter_context(self.cluster.frozen(self.target))
        wait_until(lambda: process_state(self._pid) == "T", END_SECONDS, f"the stop of {self.target}")
        return f"SIGSTOP of {self.target}"

    def heal(self) -> bool:
        stopped = process_state(self._pid) == "T"
        self._frozen.close()
        return stopped


class Rolling(NodeFault):
    kind = "rolling"
    what = "every node ended cleanly and started again, one after the other"
    cluster_wide = True

    def begin(self) -> str:
        self._restarted = 0
        for name in self.cluster.names:
            os.kill(self.cluster.pid(name), signal.SIGTERM)
            self.wait_end(name)
            self.ground.say(f"{name} has ended and comes back")
            self.cluster.start_node(name)
            wait_until(self.cluster.all_ready, READY_SECONDS, f"all nodes ready after the restart of {name}", every=0.1)
            self._restarted += 1
        return "restart of every node in turn"

    def heal(self) -> bool:
        self.start(self.cluster.names)
        return self._restarted == self.cluster.count


class NetworkFault(NodeFault):
    """Something imposed on the ways that ``ways`` names."""

    loss: float = CUT
    delay: float = 0.0

    @classmethod
    def why_not(cls, cluster: StressCluster) -> str | None:
        return None if cluster.network.cuts else "there is nothing between the nodes that could be cut"

    @abstractmethod
    def ways(self) -> set[Way]:
        """The ways that it impairs."""

    def begin(self) -> str:
        ways = self.ways()
        self._number = self.cluster.network.impose(Impairment(frozenset(ways), self.loss, self.delay))
        return f"{self.kind}: {', '.join(self._named(way) for way in sorted(ways))}"

    def heal(self) -> bool:
        return self.cluster.network.lift(self._number) > 0

    @property
    def here(self) -> int:
        """The target's index."""
        return self.cluster.index(self.target)

    @property
    def others(self) -> list[int]:
        """Every other node's."""
        return [index for index in range(self.cluster.count) if index != self.here]

    def _named(self, way: Way) -> str:
        return " to ".join("clients" if end == CLIENTS else str(end + 1) for end in way)


class Severing(NetworkFault):
    """Nothing that takes an answer passes between the target's host and the others."""

    def leaseless(self) -> set[str]:
        return {self.target} if self.cluster.network.hosts and self.cluster.members is not None else set()


class Cut(Severing):
    kind = "cut"
    what = "a node is cut off from all other nodes"

    def ways(self) -> set[Way]:
        return both_ways(self.here, self.others)


class OneWay(Severing):
    kind = "one-way"
    what = "nothing gets from a node to the others, or nothing from them to it"

    def ways(self) -> set[Way]:
        ways = {(self.here, other) for other in self.others}
        return ways if self.ground.random.random() < 0.5 else {(to, sender) for sender, to in ways}


class Partial(NetworkFault):
    kind = "partial"
    what = "a node is cut off from one other node; one of the two is the primary, for two backups say nothing"

    def ways(self) -> set[Way]:
        primary = self.cluster.in_the_record()
        away = primary is not None and primary != self.target
        other = self.cluster.index(primary) if primary and away else self.ground.random.choice(self.others)
        return both_ways(self.here, [other])


class Isolate(Severing):
    kind = "isolate"
    what = "a node is cut off from all other nodes and from the clients (in namespaces only)"

    @classmethod
    def why_not(cls, cluster: StressCluster) -> str | None:
        return None if cluster.network.cuts_clients else "clients can be cut off in network namespaces only"

    def ways(self) -> set[Way]:
        return both_ways(self.here, [*self.others, CLIENTS])


class Delay(NetworkFault):
    kind = "delay"
    what = "everything between a node and the others is late, by 20 to 300 ms"
    loss = 0.0

    @classmethod
    def why_not(cls, cluster: StressCluster) -> str | None:
        return None if cluster.network.delays else "there is no proxy between the nodes"

    def ways(self) -> set[Way]:
        self.delay = self.ground.random.uniform(0.02, 0.3)
        return both_ways(self.here, self.others)


class Loss(NetworkFault):
    kind = "loss"
    what = "packets between a node and the others are lost, 5 to 30 of 100"

    def ways(self) -> set[Way]:
        self.loss = self.ground.random.uniform(0.05, 0.3)
        return both_ways(self.here, self.others)


FAULTS: dict[str, type[NodeFault]] = {
    fault.kind: fault
    for fault in (
        *(Kill, Stop, Cut, OneWay, Partial, Isolate, Delay, Loss, DiskFull, SlowDisk, FailedSync, Clock, ClockJump),
        *(KillAll, Rolling, LostRecord),
        *STORE_FAULTS,
    )
}
