"""Faults in who is primary, and who is ready."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from ha.effects import CompareAndSet
from ha.membership.candidate import Candidate
from ha.membership.lease_length import LeaseLength
from ha.membership.record import MemoryCoordination
from ha.membership.record_keeper import RecordKeeper
from ha.membership.record_watch import RecordWatch
from ha.primary import joins
from ha.primary.attachments import Attachments
from ha.primary.joins import Joins
from ha.primary.primary import Primary
from ha.primary.transactions import Transactions
from ha.primary.tx_tracker import TxTrackers
from ha.settings import Settings
from tests.simulation.seeded.planting import replace, seeded
from txobserver.events import TxPrepare


@seeded("P10", first=5)
def lease_never_ends(stack: ExitStack) -> None:
    replace(stack, RecordKeeper, "expired", lambda original: lambda self, now: self.lost)


@seeded("P10", first=32)
def lease_margin_dropped(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def init(
            self: RecordKeeper, record: Any, sent_at: float, me: Any, settings: Settings, emit: Any, *length: Any
        ) -> None:
            original(self, record, sent_at, me, settings, emit, *length)
            self._lease_seconds = settings.lease_ttl * 1.3

        return init

    replace(stack, RecordKeeper, "__init__", make)


@seeded("P10", rare=True, mixed=True)
def the_whole_lease_is_counted_on_beside_an_earlier_version(stack: ExitStack) -> None:
    """Whose nodes wait for less."""
    replace(stack, LeaseLength, "shorter_by", lambda original: lambda self, others, now: 0.0)


@seeded("P10", rare=True)
def a_jump_of_the_clock_counts_as_waiting(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def tick(self: RecordWatch, now: float, reads: bool) -> None:
            self._stood += now - (self._ticked_at if self._ticked_at is not None else now)
            self._ticked_at = now

        return tick

    replace(stack, RecordWatch, "tick", make)


@seeded("P10", first=9)
def promotion_without_a_new_generation(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def propose(self: Candidate, proposal: CompareAndSet, now: float) -> None:
            record: Any = proposal.record
            if proposal.expected:
                record = msgspec.structs.replace(record, generation=max(1, record.generation - 1))
            original(self, CompareAndSet(proposal.expected, record), now)

        return propose

    replace(stack, Candidate, "_propose", make)


@seeded("P10", "P9", "P6", first=56)
def the_store_takes_changes_of_another_version(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def compare_and_set(self: MemoryCoordination, expected: int, record: Any) -> Any:
            return original(self, self.record.version if self.record else 0, record)

        return compare_and_set

    replace(stack, MemoryCoordination, "compare_and_set", make)


@seeded("P2", "P6", rare=True)
def promotion_from_outside_the_ready_set(stack: ExitStack) -> None:
    replace(stack, Candidate, "may_stand", lambda original: lambda self, record: True)


@seeded("P2", first=3)
def recovering_primary_serves(stack: ExitStack) -> None:
    replace(stack, Primary, "in_step", lambda original: property(lambda self: True))


@seeded("P6", first=8)
def resync_while_in_ready_set(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def join(self: Joins, node: str, join: Any, log_first: int, now: float) -> None:
            counted = self._keeper.counted
            self._keeper.counted = lambda: set()  # type: ignore[method-assign]
            try:
                original(self, node, join, log_first, now)
            finally:
                self._keeper.counted = counted  # type: ignore[method-assign]

        return join

    replace(stack, Joins, "join", make)


@seeded("P6", "P7")
def in_step_by_sequence_only(stack: ExitStack) -> None:
    replace(
        stack,
        joins,
        "common_sequence",
        lambda original: lambda ours, our_tail, theirs, their_tail: min(our_tail, their_tail),
    )


@seeded("P9", first=20)
def tracker_cleared_early(stack: ExitStack) -> None:
    replace(stack, TxTrackers, "track", lambda original: lambda self, tx, queues, prepared: None)


@seeded("P9")
def participants_taken_too_early(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def participants(self: Attachments) -> Any:
            if not hasattr(self, "first_participants"):
                self.first_participants = original(self)  # type: ignore[attr-defined]
            return self.first_participants  # type: ignore[attr-defined]

        return participants

    replace(stack, Attachments, "participants", make)


@seeded("P6")
def decided_before_all_have_prepared(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def prepare(self: Transactions, tx: int, count: int, participants: Any, done: Any) -> None:
            self._writer.append(TxPrepare(tx, count, list(participants)))
            self._decider.decide(tx, True, done)

        return prepare

    replace(stack, Transactions, "prepare", make)
    replace(stack, Attachments, "closed", lambda original: lambda self, buffer: None)
