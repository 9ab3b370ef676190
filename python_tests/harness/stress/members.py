"""The etcd of a cluster under stress: a member beside each node, on the node's host where it has one."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker_plugin.cli.cluster.plan import ClusterPlan
from broker_plugin.coordination.address import store_at
from ha.membership.record import RecordStore
from python_tests.harness.servers import etcd
from python_tests.harness.servers.etcd import EtcdServers, Hosts
from python_tests.harness.stress.network import Network

SQLITE, ETCD = "sqlite", "etcd"
COORDINATION = (SQLITE, ETCD)
"""Where the coordination record may be"""
WITH_THE_SUITE = ("setpriv", "--pdeathsig", "KILL")
"""A member ends with the thread that has started it, as a node does"""
PREFIX = "stress"
_LINE = re.compile(r"^coordination = .*$", re.MULTILINE)


class BesideNodes(Hosts):
    """Each member has its node's host where ``network`` gives nodes hosts; else all are on loopback."""

    def __init__(self, network: Network, count: int) -> None:
        super().__init__(count)
        self._network = network
        if network.hosts:
            self.ports, self.peers = [self.ports[0]] * count, [self.peers[0]] * count
            network.offer([self.ports[0], self.peers[0]])

    def known_at(self, member: int) -> str:
        """See ``Hosts``."""
        return self._network.service(member) if self._network.hosts else super().known_at(member)

    def listens_at(self, member: int) -> list[str]:
        """See ``Hosts``. Operators come from the clients' network."""
        if not self._network.hosts:
            return list(super().listens_at(member))
        return list(dict.fromkeys((self._network.host(member), self._network.service(member))))

    def command(self, member: int) -> list[str]:
        """See ``Hosts``."""
        return [*self._network.command(member), *WITH_THE_SUITE]


class Members:
    """The etcd of one cluster. Members have the indexes of their nodes. ``directory``: of all that they hold and say.

    Its network must be open, and its proxies must work, before it is started.
    """

    def __init__(self, network: Network, count: int, directory: Path) -> None:
        self.hosts = BesideNodes(network, count)
        self.count = count
        self._servers = EtcdServers(count, hosts=self.hosts, directory=directory)

    @staticmethod
    def why_not() -> str | None:
        """What is missing for it on this machine; None if nothing is."""
        if shutil.which(WITH_THE_SUITE[0]) is None:
            return f"{WITH_THE_SUITE[0]} is missing; on Debian: apt-get install util-linux"
        return etcd.why_not()

    @property
    def record(self) -> RecordStore:
        """Where the record is."""
        return store_at(self._servers.address(PREFIX))

    def keeping_the_record(self, plan: ClusterPlan) -> ClusterPlan:
        """The plan, with the record in this etcd."""
        line = f'coordination = "{self._servers.address(PREFIX)}"'
        return ClusterPlan(
            plan.directory,
            plan.identifier,
            plan.entries,
            [_LINE.sub(line, text, count=1) for text in plan.texts],
            plan.resumed,
        )

    def start(self) -> None:
        """Start all, and wait until they have a leader. Raises RuntimeError, TimeoutError."""
        self._servers.start(*self._servers.missing())

    def stop(self) -> None:
        """SIGKILL for all that run; what they hold and said is kept."""
        self._servers.__exit__(None, None, None)

    def start_again(self) -> None:
        """Start those that do not run, and wait for nothing: a fault that lasts may keep a leader from them."""
        self._servers.launch(*self._servers.missing())

    def kill(self, members: list[int]) -> int:
        """SIGKILL of these; returns how many ran."""
        running = [member for member in members if member not in self._servers.missing()]
        self._servers.kill(*running)
        return len(running)

    @contextmanager
    def frozen(self, member: int) -> Iterator[int]:
        """SIGSTOP, and SIGCONT in the end if it lives by then; its process. Raises LookupError if it does not run."""
        pid = self._servers.pid(member)
        with self._servers.frozen(member):
            yield pid

    def well(self) -> bool:
        """Whether every member runs and answers by a majority. Raises RuntimeError for one that has ended by itself."""
        return self._servers.all_answer()

    def leader(self) -> int:
        """The member that leads. Raises LookupError if none says so."""
        try:
            return self._servers.leader()
        except RuntimeError as error:
            raise LookupError(str(error)) from error

    def move_leader(self, chance: random.Random) -> tuple[int, int]:
        """Another member leads from now on; returns who led and who does. Raises LookupError if etcd refuses."""
        leader = self.leader()
        chosen = chance.choice([member for member in range(self.count) if member != leader])
        try:
            self._servers.move_leader(chosen)
        except RuntimeError as error:
            raise LookupError(str(error)) from error
        return leader, chosen
