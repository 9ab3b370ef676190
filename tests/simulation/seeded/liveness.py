"""Faults that leave something waiting for ever."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from broker_plugin.guard import Guard
from ha.apply.replica import Replica
from ha.backup.backup import Backup
from ha.membership.candidate import Candidate
from ha.membership.record_access import RecordAccess
from ha.primary.attachments import Attachments
from ha.primary.backup_session import BackupSession
from ha.primary.backups import Backups
from ha.primary.primary import Primary
from tests.simulation.seeded.planting import replace, seeded
from txobserver.ports.store import StoreDamaged


@seeded("P12")
def transactions_of_a_dead_primary_are_not_aborted(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def start(self: Primary, expected: Any) -> None:
            with patch.object(Replica, "undecided", lambda replica: []):
                original(self, expected)

        return start

    replace(stack, Primary, "start", make)


@seeded("P12", first=2)
def ready_member_without_the_record(stack: ExitStack) -> None:
    """No candidate gives its precedence up, nor stops waiting for those that have it."""
    replace(stack, RecordAccess, "doubtful", lambda original: lambda self, since, now: False)
    replace(stack, Candidate, "_is_past_deadline", lambda original: lambda self, before, now: False)


@seeded("P12", rare=True)
def silence_is_not_noticed(stack: ExitStack) -> None:
    """Of an attachment that has ended. One who speaks is told so, too: either would be enough."""

    def make(original: Any) -> Any:
        def progress(self: Backups, node: str, message: Any, now: float) -> None:
            if self.attachments.current(node, message.session) is not None:
                original(self, node, message, now)

        return progress

    replace(stack, Backup, "silent", lambda original: lambda self, now: False)
    replace(stack, Backups, "progress", make)


@seeded("P12", first=4)
def to_be_attached_again_is_progress(stack: ExitStack) -> None:
    """``attached_again_and_again_and_gets_nothing``: who owes something begins to owe it anew each time."""
    replace(stack, BackupSession, "carry", lambda original: lambda self, since, had: None)


@seeded("P12", rare=True)
def failing_primary_leaves_the_absent(stack: ExitStack) -> None:
    replace(stack, Attachments, "holders", lambda original: lambda self, sequence: self._keeper.record.ready)


@seeded("P12", "P7", "P6", "error", rare=True)
def damage_found_while_serving(stack: ExitStack) -> None:
    """As where nothing guards what the event loop calls: it logs what a callback raises, and goes on."""

    def make(original: Any) -> Any:
        def caught(self: Guard, error: Exception) -> None:
            if not isinstance(error, StoreDamaged):
                original(self, error)

        return caught

    replace(stack, Guard, "caught", make)
