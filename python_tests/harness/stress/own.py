"""A cluster of ours as a place for the suite."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from python_tests.harness.history import History
from python_tests.harness.stress.clock import FakeClock
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.disk import SmallDisk
from python_tests.harness.stress.fault import Fault, Ground, NotAsTold
from python_tests.harness.stress.faults import FAULTS
from python_tests.harness.stress.members import SQLITE, Members
from python_tests.harness.stress.namespaces import why_not
from python_tests.harness.stress.network import Namespaces, Network, Proxied
from python_tests.harness.stress.site import ANY, BACKUP, PRIMARY
from python_tests.harness.stress.store_faults import STORE_FAULTS
from python_tests.harness.stress.syncs import Disks

NETWORKS = ("auto", "namespaces", "proxies", "none")
ON_THE_NETWORK = {"cut", "one-way", "partial", "isolate", "loss", "delay"}
ETCD_ON_THE_NETWORK = {"etcd-cut", "etcd-delay"}
LATE = {"delay", "etcd-delay"}
"""What takes proxies, whatever the network"""
ETCD = {fault.kind for fault in STORE_FAULTS}
ON_THE_DISK = {"slow-disk", "failed-sync"}
ON_THE_CLOCK = {"clock", "clock-jump"}


class Own:
    """Kinds of faults by name, targets by what a node is at the moment."""

    settle = 0.1

    def __init__(self, cluster: StressCluster) -> None:
        self.cluster = cluster
        self.names = cluster.names

    @property
    def urls(self) -> list[str]:
        """See ``Site``."""
        return self.cluster.urls

    @property
    def cluster_wide(self) -> frozenset[str]:
        """See ``Site``."""
        return frozenset(kind for kind, fault in FAULTS.items() if fault.cluster_wide)

    def fault(
        self, kind: str, target: str, history: History, chance: random.Random, say: Callable[[str], None]
    ) -> tuple[Fault, str]:
        """See ``Site``."""
        primary = self.cluster.primary()
        fault = FAULTS[kind](Ground(self.cluster, history, chance, say), self._resolve(kind, target, primary, chance))
        role = "" if FAULTS[kind].cluster_wide or primary is None else PRIMARY if fault.target == primary else BACKUP
        return fault, role

    def healthy(self) -> bool:
        """See ``Site``. Raises NotAsTold for a member of etcd that has ended by itself."""
        try:
            return self.cluster.all_ready() and (self.cluster.members is None or self.cluster.members.well())
        except RuntimeError as error:
            raise NotAsTold(str(error)) from error

    def _resolve(self, kind: str, target: str, primary: str | None, chance: random.Random) -> str:
        if kind == "disk-full" and self.cluster.small is not None:
            return self.cluster.small
        if target == PRIMARY and primary is not None:
            return primary
        if target == BACKUP:
            return chance.choice([name for name in self.names if name != primary])
        return chance.choice(self.names) if target in (ANY, PRIMARY) else target


def choose_network(wanted: str, kinds: Iterable[str], nodes: int) -> Network:
    """The network that these kinds of faults take; ``wanted`` is of ``NETWORKS``, auto means namespaces if possible."""
    on_it = (ON_THE_NETWORK | ETCD_ON_THE_NETWORK) & set(kinds)
    if wanted == "none" or not on_it:
        return Network()
    if wanted == "proxies" or (wanted == "auto" and why_not() is not None):
        return Proxied(nodes)
    return Namespaces(nodes, bool(LATE & on_it))


def impossible(kinds: Iterable[str], network: str, nodes: int, coordination: str = SQLITE) -> dict[str, str]:
    """Of these kinds, those that are not possible, each with the reason: what this machine lacks, the coordination
    store, or the number of nodes. ``network`` as above, ``coordination`` of ``COORDINATION``."""
    reasons = {kind: _of_the_store(kind, coordination) or _of_the_machine(kind, network, nodes) for kind in kinds}
    return {kind: reason for kind, reason in reasons.items() if reason is not None}


def _of_the_store(kind: str, coordination: str) -> str | None:
    if coordination in FAULTS[kind].stores:
        return None
    if coordination == SQLITE:
        return "there is no etcd: give --coordination etcd"
    return "there is no coordination file: the record is in etcd"


def _of_the_machine(kind: str, network: str, nodes: int) -> str | None:
    spaces = why_not()
    if kind in (ON_THE_NETWORK | ETCD_ON_THE_NETWORK) - {"isolate"} and nodes == 1:
        return "a single node has no other to be cut off from"
    if kind in ETCD_ON_THE_NETWORK and network in ("proxies", "none"):
        return "what goes to etcd can be cut and delayed in network namespaces only"
    if kind in ON_THE_NETWORK and network == "none":
        return "--network none leaves nothing between the nodes"
    if kind in ON_THE_NETWORK and network == "namespaces":
        return spaces
    if kind == "isolate" and network == "proxies":
        return "clients can be cut off in network namespaces only"
    if kind == "isolate" or kind in ETCD_ON_THE_NETWORK:
        return spaces
    for names, missing in ((ON_THE_DISK, Disks.why_not), (ON_THE_CLOCK, FakeClock.why_not), (ETCD, Members.why_not)):
        if kind in names:
            return missing()
    return SmallDisk.why_not() if kind == "disk-full" else None
