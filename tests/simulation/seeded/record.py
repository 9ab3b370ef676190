"""Faults in what a node goes by: the coordination record, the time, and what a snapshot carries."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ha.apply.record_gate import RecordGate
from ha.catchup.join_guard import JoinGuard
from ha.catchup.queue_replicator import QueueReplicator
from ha.core import NodeCore
from ha.effects import CompareAndSet
from ha.membership.candidate import Candidate
from ha.membership.record import Record
from ha.primary.backups import Backups
from ha.primary.joins import NEVER, Joins
from ha.primary.tx_tracker import TxTrackers
from tests.simulation.cluster import Cluster
from tests.simulation.seeded.planting import replace, seeded
from txobserver.outcomes import Outcomes
from txobserver.state.applied_content import AppliedContent
from txobserver.state.queues import Queues


@seeded("P2", "P6", "P9", "P10", "P11", rare=True)
def an_older_record_is_gone_by(stack: ExitStack) -> None:
    replace(stack, RecordGate, "admits", lambda original: lambda self, record, known: True)


@seeded("P2", "P6", "P9", "P10", "P11", first=86)
def accept_data_loss_races_a_new_primary(stack: ExitStack) -> None:
    """What an operator accepted for one version of the record is taken for accepted for whatever version stands."""

    def make(original: Any) -> Any:
        def force(self: Candidate, tail: Any, now: float) -> None:
            assert self.record is not None
            self._granted_for = self.record.version
            original(self, tail, now)

        return force

    replace(stack, Candidate, "_force", make)


@seeded("P6", "P10", "error", rare=True)
def an_empty_node_founds_anew(stack: ExitStack) -> None:
    """One that finds no record and has nothing founds a cluster, whose identity is its name's."""

    def may_start(original: Any) -> Any:
        def empty_too(self: Cluster, name: str) -> bool:
            return original(self, name) or self.disks[name].last_durable() == (0, 0)

        return empty_too

    def on_record(original: Any) -> Any:
        def read(self: NodeCore, record: Record | None) -> None:
            if record is not None or self.replica.tail.sequence or self.leading or self.candidate.in_flight:
                original(self, record)
            else:
                founded = Record("simulated", 1, 1, self.member, (self.member,), cluster_id=self.gate._cluster_id)
                self.candidate._propose(CompareAndSet(0, founded), self.now)

        return read

    replace(stack, Cluster, "may_start", may_start)
    replace(stack, NodeCore, "on_record", on_record)


@seeded("P6", "P7", first=242)
def a_clock_jump_forgets_outcomes(stack: ExitStack) -> None:
    """Outcomes age by whatever the times in decisions differ."""

    def make(original: Any) -> Any:
        def pass_time(self: Outcomes, stamp_ms: int) -> None:
            self._clock_ms = max(self._clock_ms, stamp_ms)
            self._stamp_ms = stamp_ms

        return pass_time

    replace(stack, Outcomes, "_pass_time", make)


@seeded("P3", "P7", first=2)
def marks_are_missing_from_a_copy(stack: ExitStack) -> None:
    replace(stack, Queues, "overwrite_watermark", lambda original: lambda self, queue, watermark: None)


@seeded("P3", "P7", rare=True)
def marks_are_merged_with_those_of_a_copy(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def raised(self: Queues, queue: int, watermark: int) -> None:
            tally = self._tallies.get(queue)
            original(self, queue, max(watermark, tally.watermark if tally is not None else 0))

        return raised

    replace(stack, Queues, "overwrite_watermark", make)


@seeded("P12")
def heuristic_outcomes_are_not_listed_after_a_promotion(stack: ExitStack) -> None:
    replace(stack, AppliedContent, "heuristic_branches", lambda original: lambda self: [])


@seeded("P7", "P5", rare=True)
def a_snapshot_is_not_compared_at_its_end(stack: ExitStack) -> None:
    """And one message of each page does not come: a node that compares begins anew, for ever."""

    def check(original: Any) -> Any:
        def checked(self: QueueReplicator, message: Any) -> None:
            contents = self._replica.contents
            for number, _, _, watermark in message.queues:
                contents.queues.add(number)
                contents.queues.overwrite_watermark(number, watermark)
                self._queues.add(number)

        return checked

    def content(original: Any) -> Any:
        def short(self: QueueReplicator, message: Any) -> None:
            message.entries = message.entries[1:]
            original(self, message)

        return short

    replace(stack, QueueReplicator, "check", check)
    replace(stack, QueueReplicator, "content", content)


@seeded("P9", first=8)
def no_tracker_for_what_was_closed_before_a_joiner_came(stack: ExitStack) -> None:
    """And its guard stands at the commit point, not at the tail, and is not set anew: else it has all that was closed
    where it counts."""

    def make(original: Any) -> Any:
        def session(self: Joins, *of_a_joiner: Any) -> Any:
            made = original(self, *of_a_joiner)
            made.trackers = TxTrackers()
            if made.guard.at < NEVER:
                made.guard = JoinGuard(self._point.sequence)
            return made

        return session

    replace(stack, Joins, "_session", make)
    replace(stack, Backups, "_judge_at_guard", lambda original: lambda self, node, session, now: None)
