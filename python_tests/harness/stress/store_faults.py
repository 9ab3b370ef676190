"""The faults of a coordination store in etcd alone: its members, and its traffic."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable

from python_tests.harness.stress.fault import END_SECONDS, NodeFault, both_ways, process_state
from python_tests.harness.stress.members import ETCD, Members
from python_tests.harness.stress.network import CUT, Impairment
from python_tests.harness.waiting import wait_until


class StoreFault(NodeFault):
    """``target`` is a node; the member of etcd beside it bears its number."""

    stores = frozenset({ETCD})

    @property
    def members(self) -> Members:
        """The cluster's etcd."""
        assert self.cluster.members is not None
        return self.cluster.members

    @property
    def here(self) -> int:
        """The target's index, and its member's."""
        return self.cluster.index(self.target)


class EtcdKill(StoreFault):
    kind = "etcd-kill"
    what = "SIGKILL of the member of etcd beside a node, started again later"

    def begin(self) -> str:
        self._killed = self.members.kill([self.here])
        return f"SIGKILL of etcd {self.here + 1}"

    def heal(self) -> bool:
        self.members.start_again()
        return self._killed == 1


class EtcdStop(StoreFault):
    kind = "etcd-stop"
    what = "SIGSTOP of the member of etcd beside a node, SIGCONT later"

    def begin(self) -> str:
        self._frozen = contextlib.ExitStack()
        self._pid = self._frozen.enter_context(self.members.frozen(self.here))
        wait_until(lambda: process_state(self._pid) == "T", END_SECONDS, f"the stop of etcd {self.here + 1}")
        return f"SIGSTOP of etcd {self.here + 1}"

    def heal(self) -> bool:
        stopped = process_state(self._pid) == "T"
        self._frozen.close()
        return stopped


class EtcdLeader(StoreFault):
    kind = "etcd-leader"
    what = "the member of etcd that leads is killed and started again later, or leadership is moved to another one"

    def begin(self) -> str:
        leader = self.members.leader()
        if self.ground.random.random() < 0.5 and self.members.count > 1:
            was, now = self.members.move_leader(self.ground.random)
            self._hit = was != now
            return f"etcd {now + 1} leads instead of etcd {was + 1}"
        self._hit = self.members.kill([leader]) == 1
        return f"SIGKILL of etcd {leader + 1}, the leader"

    def heal(self) -> bool:
        self.members.start_again()
        return self._hit


class EtcdAll(StoreFault):
    kind = "etcd-all"
    what = "SIGKILL of all members of etcd at once, started again later"
    cluster_wide = True

    def begin(self) -> str:
        self._killed = self.members.kill(list(range(self.members.count)))
        return "SIGKILL of every member of etcd"

    def heal(self) -> bool:
        self.members.start_again()
        return self._killed == self.members.count

    def leaseless(self) -> set[str]:
        return set(self.cluster.names)


class StoreNetworkFault(StoreFault):
    """Something imposed on connections with members of etcd, and on no others."""

    @abstractmethod
    def impairments(self) -> list[Impairment]:
        """All of them at once."""

    def begin(self) -> str:
        self._imposed = [self.cluster.network.impose(each) for each in self.impairments()]
        return self.done()

    @abstractmethod
    def done(self) -> str:
        """In words."""

    def heal(self) -> bool:
        hits = [self.cluster.network.lift(number) for number in self._imposed]
        return sum(hits) > 0

    @property
    def others(self) -> list[int]:
        """Every other node's index."""
        return [index for index in range(self.cluster.count) if index != self.here]

    def all_ports(self, members: Iterable[int]) -> frozenset[tuple[int, int]]:
        """Those for nodes and those for other members."""
        hosts = self.members.hosts
        return frozenset((member, port) for member in members for port in (hosts.ports[member], hosts.peers[member]))

    def node_ports(self, members: Iterable[int]) -> frozenset[tuple[int, int]]:
        """Those for nodes."""
        return frozenset((member, self.members.hosts.ports[member]) for member in members)


class EtcdCut(StoreNetworkFault):
    kind = "etcd-cut"
    what = "a node's etcd is cut off from the other hosts, or the node from every member; the nodes stay linked"

    def impairments(self) -> list[Impairment]:
        here, others = self.here, self.others
        self._node = self.ground.random.random() < 0.5
        if not self._node:
            everywhere = self.all_ports(range(self.members.count))
            return [Impairment(frozenset(both_ways(here, others)), CUT, served=everywhere)]
        away = Impairment(frozenset(both_ways(here, others)), CUT, served=self.node_ports(others))
        return [away, Impairment(frozenset({(here, here)}), CUT, served=self.node_ports([here]))]

    def done(self) -> str:
        if self._node:
            return f"{self.target} is cut off from every member of etcd"
        return f"etcd {self.here + 1} is cut off from the other hosts"

    def leaseless(self) -> set[str]:
        return {self.target} if self.cluster.count > 2 or self._node else set(self.cluster.names)

    def cut_off(self) -> set[str]:
        return set()


class EtcdDelay(StoreNetworkFault):
    kind = "etcd-delay"
    what = "everything between a node's host and members of etcd elsewhere is late, by 20 to 300 ms"

    def impairments(self) -> list[Impairment]:
        self._delay = self.ground.random.uniform(0.02, 0.3)
        ways = frozenset(both_ways(self.here, self.others))
        return [Impairment(ways, delay=self._delay, served=self.all_ports(range(self.members.count)))]

    def done(self) -> str:
        return f"etcd-delay: {self._delay * 1000:.0f} ms between host {self.here + 1} and etcd elsewhere"


STORE_FAULTS = (EtcdKill, EtcdStop, EtcdLeader, EtcdAll, EtcdCut, EtcdDelay)
