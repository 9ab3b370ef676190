"""What every fault is: it begins, has hit something or not, and is healed.

It knows by itself whether it has hit: a run in which a fault went by without any effect proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from python_tests.harness.history import History
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.members import COORDINATION
from python_tests.harness.stress.network import Way
from python_tests.harness.waiting import wait_until

END_SECONDS = 10.0


class NotAsTold(Exception):
    """What followed a fault is not what docs/operations.md says; one sentence says what it was."""


@dataclass
class Ground:
    """What faults work on."""

    cluster: StressCluster
    history: History
    random: random.Random
    say: Callable[[str], None]


class Fault(ABC):
    """One fault. ``target`` is the name of a node."""

    def __init__(self, target: str) -> None:
        self.target = target

    @abstractmethod
    def begin(self) -> str:
        """Let it happen; returns what was done, in words. Raises NetworkError, OSError, LookupError, TimeoutError."""

    @abstractmethod
    def heal(self) -> bool:
        """Put everything right; returns whether it has hit anything.

        Raises NetworkError, OSError, TimeoutError, NotAsTold.
        """

    def leaseless(self) -> set[str]:
        """Nodes that can renew no lease while it lasts, since they reach no majority of etcd; asked when it has begun.

        What they acknowledge after their lease is a broken promise.
        """
        return set()

    def cut_off(self) -> set[str]:
        """Those of ``leaseless`` that cannot pass clients on to another node either: they acknowledge nothing then."""
        return self.leaseless()


class NodeFault(Fault):
    """A fault of a cluster of our own. ``cluster_wide``: it hits all nodes, and nothing else can go on beside it."""

    kind: ClassVar[str]
    what: ClassVar[str]
    """In a few words, for people"""
    cluster_wide: ClassVar[bool] = False
    stores: ClassVar[frozenset[str]] = frozenset(COORDINATION)
    """With which coordination stores it is possible"""

    def __init__(self, ground: Ground, target: str) -> None:
        super().__init__(target)
        self.ground = ground
        self.cluster = ground.cluster

    @classmethod
    def why_not(cls, cluster: StressCluster) -> str | None:
        """Why this kind is not possible with this cluster; None if it is."""
        return None

    def kill(self, names: Iterable[str]) -> int:
        """SIGKILL of these nodes at once; returns how many ran."""
        was_primary, killed = self.cluster.in_the_record(), []
        for name in names:
            with contextlib.suppress(LookupError):
                os.kill(self.cluster.pid(name), signal.SIGKILL)
                killed.append(name)
        moment = time.monotonic()
        # Named before and after: no other node was primary meanwhile, so a client that was connected is served no
        # longer. With no node left, that is so in any case.
        alone = was_primary in killed and self.cluster.in_the_record() == was_primary
        if killed and (alone or not any(map(self.cluster.processes.runs, set(self.cluster.names) - set(killed)))):
            self.ground.history.kills.append(moment)
        for name in killed:
            self.wait_end(name)
        return len(killed)

    def wait_end(self, name: str) -> None:
        """Until a node's process has ended. Raises TimeoutError."""
        wait_until(lambda: not self.cluster.processes.runs(name), END_SECONDS, f"the end of {name}")

    def start(self, names: Iterable[str]) -> None:
        """Start those that do not run."""
        for name in names:
            if not self.cluster.processes.runs(name):
                self.cluster.start_node(name)


def both_ways(node: int, others: Iterable[int]) -> set[Way]:
    """From a node to the others, and from them to it."""
    return {way for other in others for way in ((node, other), (other, node))}


def process_state(pid: int) -> str:
    """As in /proc: T for a stopped process; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""
