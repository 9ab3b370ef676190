"""A cluster of ours as a place for the suite."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from python_tests.harness.history import History
from python_tests.harness.stress.clock import FakeClock
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.disk import SmallDisk
from python_tests.harness.stress.fault import Fault, Ground
from python_tests.harness.stress.faults import FAULTS
from python_tests.harness.stress.namespaces import why_not
from python_tests.harness.stress.network import Namespaces, Network, Proxied
from python_tests.harness.stress.site import ANY, BACKUP, PRIMARY
from python_tests.harness.stress.syncs import Disks

NETWORKS = ("auto", "namespaces", "proxies", "none")
ON_THE_NETWORK = {"cut", "one-way", "partial", "isolate", "loss", "delay"}
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
        """See ``Site``."""
        return self.cluster.all_ready()

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
    on_it = ON_THE_NETWORK & set(kinds)
    if wanted == "none" or not on_it:
        return Network()
    if wanted == "proxies" or (wanted == "auto" and why_not() is not None):
        return Proxied(nodes)
    return Namespaces(nodes, "delay" in on_it)


def impossible(kinds: Iterable[str], network: str, nodes: int) -> dict[str, str]:
    """Of these kinds, those that this machine does not allow, each with what is missing. ``network`` as above."""
    spaces, missing = why_not(), {}
    for kind in kinds:
        reason = None
        if kind in ON_THE_NETWORK - {"isolate"} and nodes == 1:
            reason = "a single node has no other to be cut off from"
        elif kind in ON_THE_NETWORK and network == "none":
            reason = "--network none leaves nothing between the nodes"
        elif kind in ON_THE_NETWORK and network == "namespaces":
            reason = spaces
        elif kind == "isolate":
            reason = "clients can be cut off in network namespaces only" if network == "proxies" else spaces
        elif kind == "disk-full":
            reason = SmallDisk.why_not()
        elif kind in ON_THE_DISK:
            reason = Disks.why_not()
        elif kind in ON_THE_CLOCK:
            reason = FakeClock.why_not()
        if reason is not None:
            missing[kind] = reason
    return missing
