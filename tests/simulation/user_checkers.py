"""Users: nodes at one position let the same users in, and an operator is told what the stream decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ha.refusals import NO_PRIMARY, NOT_ACTIVE
from tests.simulation.checker import Checker
from tests.simulation.user_reference import UserReference
from txobserver.ids import Position

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth

DECIDED = {None, "exists", "gone", "changed meanwhile", "no virtual host", "being deleted", "no destination"}
"""Answers that say what became of a step where it stands in the stream"""


class SameUsers(Checker):
    """``_refused``: the labels of the steps that were told to be in no stream."""

    promise = "P7"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._refused: set[str] = set()
        self._looked = 0

    @property
    def stream(self) -> UserReference:
        """What the one stream leads to."""
        return self.truth.reference.users

    def changed(self, change: object) -> None:
        labels = self.stream.labels
        for label in labels[self._looked :]:
            if label in self._refused:
                self.fail(f"the step {label} stands in the stream, and was told not to")
        self._looked = len(labels)

    def stands_at(self, process: Process, applied: Position) -> None:
        replica = process.core.replica
        if replica.resyncing:
            return
        found = {name: (user.hash, user.tags) for name, user in replica.contents.access.users.items()}
        expected = self.stream.as_of(applied.sequence)
        if found != expected:
            self.fail(f"{process.name} at {applied} lets {found} in, and the stream leads to {expected}")
        rules = {
            (each.kind, each.vhost, each.name, each.scope): msgspec.structs.astuple(each.value)
            for each in replica.contents.access.rules.values()
        }
        if rules != self.stream.rules_as_of(applied.sequence):
            said = self.stream.rules_as_of(applied.sequence)
            self.fail(f"{process.name} at {applied} goes by the rules {rules}, and the stream leads to {said}")
        changes = replica.contents.access.changes
        shown = tuple((each.tnx_id, each.operation, each.name, each.user, each.refusal) for each in changes)
        if shown != self.stream.changes_as_of(applied.sequence):
            said = self.stream.changes_as_of(applied.sequence)
            self.fail(f"{process.name} at {applied} keeps the changes {shown}, and the stream leads to {said}")

    def user_answered(
        self, process: Process, label: str, taken_away: str, before: dict[str | None, int], error: str | None
    ) -> None:
        """A node tells an operator what became of a step. Without a label: of one that takes away; ``before``: how
        often that had come to what, when it was asked for."""
        if error not in DECIDED:
            if error in (NO_PRIMARY, NOT_ACTIVE) and label:
                self._refused.add(label)
                if label in self.stream.results:
                    self.fail(f"{process.name} tells that {label} stands in no stream, and it does")
            return
        if label:
            if self.stream.results.get(label, "nothing") != error:
                became = self.stream.results.get(label, "nothing")
                self.fail(f"{process.name} tells that {label} came to {error}, and it came to {became}")
            self._check_applied(process, label)
        elif self.stream.deletions[taken_away, error] <= before[error]:
            self.fail(f"{process.name} tells that {taken_away} came to {error}, and none did")

    def _check_applied(self, process: Process, label: str) -> None:
        """Who looks where he has asked sees what he has changed."""
        applied, sequence = process.core.replica.applied, self.stream.stands_at(label)
        if applied.sequence < sequence and process.core.failed is None:
            self.fail(f"{process.name} tells what {label} came to, at {sequence}, and has applied {applied}")
