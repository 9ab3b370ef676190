"""Faults in what becomes of a cluster after an operator has accepted a loss."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ha.backup.backup import Backup
from tests.simulation.seeded.planting import replace, seeded


@seeded("P12", first=9)
def an_accepted_loss_is_not_known_to_those_who_come_back(stack: ExitStack) -> None:
    """They refuse to be overwritten, as if no operator had accepted it, and stay away for ever."""

    def make(original: Any) -> Any:
        def begin(self: Backup, *of_a_backup: Any) -> None:
            original(self, *of_a_backup)
            self._loss_accepted = 0

        return begin

    replace(stack, Backup, "__init__", make)
