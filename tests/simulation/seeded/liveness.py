"""Faults that leave something waiting for ever."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from ha.backup import Backup
from ha.backups import Backups
from ha.primary import Primary
from ha.replica import Replica
from tests.simulation.seeded.planting import replace, seeded


@seeded("P12")
def transactions_of_a_dead_primary_are_not_aborted(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def start(self: Primary, expected: Any) -> None:
            with patch.object(Replica, "undecided", lambda replica: []):
                original(self, expected)

        return start

    replace(stack, Primary, "start", make)


@seeded("P12", rare=True)
def silence_is_not_noticed(stack: ExitStack) -> None:
    replace(stack, Backup, "silent", lambda original: lambda self, now: False)


@seeded("P12", rare=True)
def failing_primary_leaves_the_absent(stack: ExitStack) -> None:
    replace(stack, Backups, "holders", lambda original: lambda self, sequence: self._keeper.record.ready)
