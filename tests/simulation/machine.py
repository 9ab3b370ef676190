"""What a node's actions work on, and the file that says how far it has run the calls: both outlive a process."""

from __future__ import annotations

import random

from txobserver.calls import LocalCalls


class Machine:
    """``in_force``: arguments by (operation, name), where something was set.

    The file is replaced whole. ``_unsynced``: what a process has put into its place, and not synced yet: the next
    process reads that, and a power cut takes it back or not.
    """

    def __init__(self) -> None:
        self.in_force: dict[tuple[str, str], bytes] = {}
        self.durable = LocalCalls()
        self._unsynced: LocalCalls | None = None
        self._chance = random.Random(0)

    def read(self) -> LocalCalls:
        """What a process finds; it makes durable what it goes by."""
        if self._unsynced is not None:
            self.sync(self._unsynced)
        return self.durable

    def write(self, local: LocalCalls) -> None:
        """Put this into the file's place."""
        self._unsynced = local

    def sync(self, local: LocalCalls) -> None:
        """What stands there is durable."""
        self.durable, self._unsynced = local, None

    def power_cut(self) -> None:
        """The machine goes down."""
        if self._unsynced is not None and self._chance.random() < 0.5:
            self.durable = self._unsynced
        self._unsynced = None
