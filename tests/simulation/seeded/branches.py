"""Faults in what becomes of branches."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from broker_plugin.embedded.operations.branch_operations import BranchOperations
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from ha.primary.branch_ledger import BranchLedger
from ha.primary.primary import Primary
from tests.simulation.seeded.planting import replace, seeded
from txobserver.outcomes import Outcomes
from txobserver.state.applied_content import AppliedContent
from txobserver.tx_buffer import DtxBuffer


@seeded("P2")
def a_prepared_branch_is_aborted_at_failover(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def start(self: Primary, expected: Any) -> None:
            original(self, expected)
            for buffer in list(self._replica.undecided()):
                self.decisions.tx_rollback(buffer.tx)

        return start

    replace(stack, Primary, "start", make)


@seeded("P2", "P11", "P6")
def a_decision_is_answered_before_the_commit_point(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def decide(self: BranchLedger, xid: Any, commit: bool, heuristic: bool, done: Any) -> None:
            def once(outcome: str | None) -> None:
                if outcome is not None:
                    done(outcome)

            there = self._table.in_doubt(xid) is not None
            original(self, xid, commit, heuristic, once)
            if there:
                done(None)

        return decide

    replace(stack, BranchLedger, "decide", make)


@seeded("P6", "P2", rare=True)
def a_failed_vote_is_answered_at_once(stack: ExitStack) -> None:
    """Told as rolled back while others hold the prepare."""

    def make(original: Any) -> Any:
        def cancel(self: BranchLedger, tx: int, reason: str) -> None:
            waiting = self._preparing.pop(tx, None)
            if waiting is not None:
                self._decider.decide(tx, False, None)
                self._point.answer(waiting[1], reason)

        return cancel

    replace(stack, BranchLedger, "cancel", make)


@seeded("P7", first=2)
def outcomes_are_left_out_of_the_snapshot(stack: ExitStack) -> None:
    """On both ends, so that the joiner takes it for whole."""

    def make(original: Any) -> Any:
        def replaced(self: Outcomes, meta: Any, remembered: Any) -> None:
            original(self, type(meta)(), [])

        return replaced

    replace(stack, Outcomes, "replace", make)


@seeded("P6", "P4")
def a_branch_that_is_late_is_prepared(stack: ExitStack) -> None:
    replace(stack, BranchLedger, "_fence", lambda original: lambda self, buffer: None)


@seeded("P3", "P1")
def what_a_prepared_branch_dequeues_is_handed_out(stack: ExitStack) -> None:
    replace(stack, DurableQueue, "lock", lambda original: lambda self, entries: None)


@seeded("P12", first=1)
def the_next_primary_lists_no_branches(stack: ExitStack) -> None:
    replace(stack, AppliedContent, "branches", lambda original: lambda self: [])


@seeded("P6", rare=True)
def a_coordinator_is_told_ok_for_a_heuristic_decision(stack: ExitStack) -> None:
    replace(stack, BranchOperations, "_joins_operator", lambda original: lambda self, channel, branch, reply: False)


@seeded("P7")
def a_checkpoint_forgets_that_a_branch_stays(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def closing(self: DtxBuffer) -> Any:
            return super(DtxBuffer, self)._closing()

        return closing

    replace(stack, DtxBuffer, "_closing", make)
