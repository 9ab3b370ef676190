"""Where the suite runs: what the scenario needs to know of a cluster, however it was started."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from python_tests.harness.history import History
from python_tests.harness.stress.fault import Fault

PRIMARY, BACKUP, ANY = "primary", "backup", "any"
"""What a schedule may name instead of a node"""


class Site(Protocol):
    """A cluster under stress."""

    @property
    def names(self) -> Sequence[str]:
        """Of the nodes."""
        ...

    @property
    def urls(self) -> Sequence[str]:
        """Where clients connect, node by node."""
        ...

    @property
    def settle(self) -> float:
        """Seconds for which no message may come before the queues are taken for empty."""
        ...

    @property
    def cluster_wide(self) -> frozenset[str]:
        """The kinds of faults that hit all nodes at once."""
        ...

    def fault(
        self, kind: str, target: str, history: History, chance: random.Random, say: Callable[[str], None]
    ) -> tuple[Fault, str]:
        """A fault of this kind, and what its target is now: primary, backup or empty.

        ``target`` is a node's name or one of the words above. Raises LookupError if there is none now.
        """
        ...

    def healthy(self) -> bool:
        """Whether all nodes are there and well."""
        ...
