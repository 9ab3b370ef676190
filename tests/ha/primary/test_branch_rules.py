"""The rules of branches at the Ledger, one a test; they run under the cluster's oracles."""

from __future__ import annotations

import pytest

from ha.apply.replica import Replica
from tests.support.branch_steps import (
    X,
    alone,
    branch_prepared,
    content_of,
    decide,
    decide_globally,
    in_doubt,
    in_log,
    ledger_of,
    one_phase,
    outcome,
    prepare,
    refused,
    take_over,
    work_on,
)
from tests.support.memory_cluster import MemoryNode
from tests.support.memory_host import text
from tests.support.steps import (
    T,
    answered,
    backups_of,
    declared,
    publish,
    survivors_agree,
    whole_or_absent,
)
from txobserver.configuration import delete_queue_step
from txobserver.events import DtxDecision, DtxOpen, DtxPrepare, TxOpen, TxToken
from txobserver.ids import MAX_TRANSACTION_BYTES
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import NameInUse
from txobserver.ports.store import MemoryBase, Meta
from txobserver.xid import Xid


class TestPrepare:
    def test_it_is_durable_on_every_ready_node_before_its_answer(self) -> None:
        cluster = declared("q", "r")
        primary, _, slow = cluster.primary, *backups_of(cluster)
        cluster.held.add((primary.name, slow.name))
        prepare(primary, work_on(primary))
        cluster.pause(0.5)
        assert primary.host.answer("prepare") is None
        assert in_doubt(primary) == [] and outcome(primary) is BranchOutcome.PENDING and primary.host.prepared == {}
        cluster.held.clear()
        answered(cluster, primary, "prepare")
        assert in_doubt(primary) == [X] and outcome(primary) is BranchOutcome.PREPARED and X in primary.host.prepared

    def test_its_answer_comes_behind_those_of_what_stands_before_it(self) -> None:
        cluster, primary = alone()
        observer = work_on(primary)

        def both() -> None:
            primary.host.publish("q", "before")
            observer.prepare(primary.host.note("prepare"))

        primary.report(both)
        answered(cluster, primary, "prepare")
        assert [label for label, _ in primary.host.answers[-2:]] == ["publish before", "prepare"]

    def test_what_is_listed_of_it(self) -> None:
        cluster, primary = alone()
        publish(primary, "q", "in")
        answered(cluster, primary, "publish in")
        offset, rid = primary.host.entry("q", "in")
        number, other = primary.host.number("q"), primary.host.number("r")
        branch_prepared(cluster, takes=(("q", "in"),))
        (branch,) = content_of(primary).branches()
        assert (branch.xid, branch.generation, branch.prepared_ms) == (X, 1, pytest.approx(cluster.now * 1000, abs=500))
        assert branch.enqueues == {number: 1, other: 1} and branch.locked == {number: [(offset, rid)]}
        assert content_of(primary).prepared_branch(X) == branch
        assert content_of(primary).prepared_branch(X._replace(bqual=b"no")) is None

    def test_an_empty_one_has_ended_without_a_trace(self) -> None:
        _, primary = alone()
        observer = ledger_of(primary).begin_branch(X)
        assert observer.empty
        tail = primary.core.replica.tail
        prepare(primary, observer)
        assert primary.host.answer("prepare") == "ok" and primary.core.replica.tail == tail
        assert outcome(primary) is BranchOutcome.UNKNOWN and not work_on(primary).empty

    def test_nothing_is_visible_and_nothing_goes_before_the_decision(self) -> None:
        cluster, primary = alone()
        publish(primary, "q", "in")
        answered(cluster, primary, "publish in")
        branch_prepared(cluster, takes=(("q", "in"),))
        cluster.pause(0.5)
        assert primary.host.bodies("q") == ["in"] and primary.host.bodies("r") == []

    def test_no_timeout_ends_it(self) -> None:
        cluster = declared("q", "r")
        branch_prepared(cluster)
        cluster.pause(60)
        assert in_doubt(cluster.primary) == [X]

    def test_it_takes_nothing_more(self) -> None:
        _, primary = alone()
        observer = work_on(primary)
        prepare(primary, observer)
        with pytest.raises(ValueError, match="takes no more events"):
            observer.enqueue([1], text("late"))

    def test_it_is_refused_and_rolled_back_while_too_few_are_ready(self) -> None:
        cluster = declared("q", "r", size=2, min_ready=2)
        primary, other = cluster.primary, *backups_of(cluster)
        observer = work_on(primary)
        cluster.kill(other.name)
        cluster.run(lambda: len(cluster.coordination.record.ready) == 1)
        prepare(primary, observer)
        assert "nodes are ready" in refused(primary, "prepare")
        cluster.start(other.name)
        survivors_agree(cluster)
        assert outcome(primary) is BranchOutcome.ROLLED_BACK

    def test_one_on_its_way_rolls_back_when_too_few_are_ready_and_says_so_when_it_is_durable(self) -> None:
        cluster = declared("q", "r", size=2, min_ready=2)
        primary, other = cluster.primary, *backups_of(cluster)
        cluster.held.add((other.name, primary.name))
        prepare(primary, work_on(primary))
        cluster.run(lambda: in_log(primary, DtxPrepare))
        cluster.kill(other.name)
        cluster.run(lambda: in_log(primary, DtxDecision))
        cluster.pause(1)
        assert primary.host.answer("prepare") is None
        cluster.held.clear()
        cluster.start(other.name)
        cluster.run(lambda: primary.host.answer("prepare") is not None)
        assert "rolled back" in refused(primary, "prepare") and outcome(primary) is BranchOutcome.ROLLED_BACK


class TestDecision:
    @pytest.mark.parametrize("commits", [True, False])
    def test_it_waits_for_the_commit_point_and_is_told_to_the_host(self, commits: bool) -> None:
        cluster = declared("q", "r")
        branch_prepared(cluster)
        primary, _, slow = cluster.primary, *backups_of(cluster)
        cluster.held.add((primary.name, slow.name))
        decide(primary, commits)
        cluster.pause(0.5)
        assert primary.host.answer("decide") is None and outcome(primary) is BranchOutcome.PENDING
        assert primary.host.ended == []
        cluster.held.clear()
        answered(cluster, primary, "decide")
        survivors_agree(cluster)
        assert primary.host.ended == [(X, commits)] and whole_or_absent(cluster, *T) is commits
        assert outcome(primary) is (BranchOutcome.COMMITTED if commits else BranchOutcome.ROLLED_BACK)

    def test_it_needs_a_prepared_branch(self) -> None:
        cluster, primary = alone()
        decide(primary, True, label="unknown")
        observer = work_on(primary)
        decide(primary, True, label="open")
        prepare(primary, observer)
        decide(primary, True, label="preparing")
        answered(cluster, primary, "prepare")
        decide(primary, True, label="decided")
        decide(primary, False, label="again")
        for label in ("unknown", "open", "preparing", "again"):
            assert "not prepared" in refused(primary, label)
        answered(cluster, primary, "decided")

    def test_one_that_is_taken_does_not_fail(self) -> None:
        """min_ready is lost behind it: the answer waits."""
        cluster = declared("q", "r", size=2, min_ready=2)
        branch_prepared(cluster)
        primary, other = cluster.primary, *backups_of(cluster)
        cluster.kill(other.name)
        cluster.run(lambda: len(cluster.coordination.record.ready) == 1)
        decide(primary, True)
        cluster.pause(1)
        assert primary.host.answer("decide") is None
        cluster.start(other.name)
        answered(cluster, primary, "decide")
        assert whole_or_absent(cluster, *T)

    def test_a_rolled_back_branch_leaves_what_it_took(self) -> None:
        cluster, primary = alone()
        publish(primary, "q", "in")
        answered(cluster, primary, "publish in")
        branch_prepared(cluster, takes=(("q", "in"),))
        decide(primary, False)
        answered(cluster, primary, "decide")
        assert primary.host.bodies("q") == ["in"]
        primary.report(lambda: ledger_of(primary).purge(1, (1 << 63) - 1, [], primary.host.note("purge")))
        answered(cluster, primary, "purge")
        assert primary.host.bodies("q") == [], "it is locked no more"

    def test_a_queue_is_deleted_under_a_prepared_branch(self) -> None:
        cluster = declared("q", "r")
        primary = cluster.primary
        publish(primary, "q", "in")
        answered(cluster, primary, "publish in")
        branch_prepared(cluster, takes=(("q", "in"),))
        primary.report(lambda: ledger_of(primary).configure(delete_queue_step("q"), primary.host.note("delete")))
        answered(cluster, primary, "delete")
        decide(primary, True)
        answered(cluster, primary, "decide")
        survivors_agree(cluster)
        assert primary.host.bodies("r") == ["t"]

    def test_an_operator_s_is_remembered_until_it_is_forgotten(self) -> None:
        cluster, primary = alone(outcomes_kept=1, outcome_seconds=1.0)
        branch_prepared(cluster)
        decide(primary, True, heuristic=True)
        answered(cluster, primary, "decide")
        cluster.pause(5)
        for number in range(3):
            one_phase(primary, Xid(2, b"g", bytes((number,))), f"other {number}")
            answered(cluster, primary, f"other {number}")
        assert outcome(primary) is BranchOutcome.HEURISTICALLY_COMMITTED
        assert content_of(primary).heuristic_branches() == [X]
        primary.report(lambda: ledger_of(primary).forget_branch(X, primary.host.note("forget")))
        answered(cluster, primary, "forget")
        assert content_of(primary).heuristic_branches() == []

    def test_only_an_outcome_can_be_forgotten(self) -> None:
        cluster, primary = alone()
        forget = ledger_of(primary).forget_branch
        primary.report(lambda: forget(X, primary.host.note("unknown")))
        branch_prepared(cluster)
        primary.report(lambda: forget(X, primary.host.note("prepared")))
        for label in ("unknown", "prepared"):
            assert "no outcome" in refused(primary, label)
        assert in_doubt(primary) == [X]


class TestUnprepared:
    def test_a_rollback_is_answered_at_once(self) -> None:
        cluster = declared("q", "r")
        primary, *backups = cluster.primary, *backups_of(cluster)
        for backup in backups:
            cluster.held.add((primary.name, backup.name))
        observer = work_on(primary)
        primary.report(lambda: observer.rollback(primary.host.note("rollback")))
        assert primary.host.answer("rollback") == "ok"
        cluster.held.clear()
        survivors_agree(cluster)
        assert outcome(primary) is BranchOutcome.ROLLED_BACK and not whole_or_absent(cluster, *T)

    def test_one_phase_is_remembered_under_the_xid(self) -> None:
        cluster = declared("q", "r")
        one_phase(cluster.primary)
        assert outcome(cluster.primary) is BranchOutcome.PENDING
        answered(cluster, cluster.primary, "one-phase")
        survivors_agree(cluster)
        assert whole_or_absent(cluster, *T)
        assert {outcome(node) for node in cluster.nodes.values()} == {BranchOutcome.COMMITTED}

    @pytest.mark.parametrize("turns", range(9))
    def test_one_phase_at_a_failover(self, turns: int) -> None:
        """It is aborted or committed, and who asks by its xid is told which; it is never in doubt."""
        cluster = declared("q", "r")
        primary = cluster.primary
        one_phase(primary)
        for _ in range(turns):
            cluster.turn()
        new = take_over(cluster, primary)
        cluster.pause(0.3)
        assert in_doubt(new) == []
        committed = whole_or_absent(cluster, *T)
        assert committed or primary.host.answer("one-phase") is None
        told = (BranchOutcome.COMMITTED,) if committed else (BranchOutcome.ROLLED_BACK, BranchOutcome.UNKNOWN)
        assert outcome(new) in told
        assert outcome(new) is not BranchOutcome.UNKNOWN or not turns, "its events had reached a backup"

    def test_an_open_branch_is_aborted_at_failover(self) -> None:
        cluster = declared("q", "r")
        primary = cluster.primary
        work_on(primary)
        cluster.pause(0.2)
        assert outcome(primary) is BranchOutcome.ACTIVE
        new = take_over(cluster, primary)
        assert in_doubt(new) == [] and outcome(new) is BranchOutcome.ROLLED_BACK


class TestNames:
    def test_a_live_xid_is_in_use(self) -> None:
        cluster, primary = alone()
        observer = ledger_of(primary).begin_branch(X)
        with pytest.raises(NameInUse):
            ledger_of(primary).begin_branch(X)
        primary.report(lambda: observer.rollback(primary.host.note("rollback")))
        branch_prepared(cluster)
        with pytest.raises(NameInUse):
            ledger_of(primary).begin_branch(X)

    @pytest.mark.parametrize("commits", [False, True])
    @pytest.mark.parametrize("heuristic", [False, True])
    def test_of_one_that_has_ended(self, commits: bool, heuristic: bool) -> None:
        """Only what was rolled back in order may be tried again."""
        cluster, primary = alone()
        branch_prepared(cluster)
        decide(primary, commits, heuristic=heuristic)
        answered(cluster, primary, "decide")
        if not commits and not heuristic:
            one_phase(primary)
            answered(cluster, primary, "one-phase")
            assert outcome(primary) is BranchOutcome.COMMITTED
        else:
            with pytest.raises(NameInUse):
                ledger_of(primary).begin_branch(X)

    def test_at_the_next_primary_too(self) -> None:
        cluster = declared("q", "r")
        branch_prepared(cluster)
        new = take_over(cluster, cluster.primary)
        with pytest.raises(NameInUse):
            ledger_of(new).begin_branch(X)

    def test_an_xid_is_free_at_once_when_its_branch_was_rolled_back_unprepared(self) -> None:
        cluster, primary = alone()
        observer = work_on(primary, body="first")
        primary.report(lambda: observer.rollback(primary.host.note("rollback")))
        one_phase(primary)
        answered(cluster, primary, "one-phase")
        assert outcome(primary) is BranchOutcome.COMMITTED and primary.host.bodies("q") == ["t"]

    def test_one_whose_events_are_cut_off_is_free(self) -> None:
        """A node that was primary lost its last events to another; it becomes primary again."""
        replica = Replica(MemoryBase(), Meta(), {})
        replica.append(1, DtxOpen(7, X))
        replica.append(1, TxOpen(8))
        replica.append(1, TxToken(8, b"token"))
        table = replica.contents.table
        assert table.in_use(X) and table.in_use(b"token")
        replica.truncate(2)
        assert table.in_use(X) and not table.in_use(b"token")
        replica.truncate(0)
        assert not table.in_use(X) and table.branches_of(X.globally) == {}


class TestMemory:
    """What prepared branches hold counts for the bound on memory: they stay for long."""

    def held(self, node: MemoryNode) -> int:
        assert node.core.leading
        return node.core.leading.primary.decisions.factory.open_bytes

    def test_until_they_end_and_at_the_next_primary(self) -> None:
        cluster = declared("q", "r")
        branch_prepared(cluster)
        assert self.held(cluster.primary) == 2
        new = take_over(cluster, cluster.primary)
        assert self.held(new) == 2
        decide(new, True)
        answered(cluster, new, "decide")
        assert self.held(new) == 0

    def test_not_when_it_is_refused(self) -> None:
        _, primary = alone()
        decide_globally(primary, False)
        prepare(primary, work_on(primary))
        assert refused(primary, "prepare") and self.held(primary) == 0

    def test_one_branch_has_the_limits_of_a_transaction(self) -> None:
        _, primary = alone()
        observer = ledger_of(primary).begin_branch(X)
        for _ in range(2):
            primary.report(lambda: observer.enqueue([1], text("x" * (MAX_TRANSACTION_BYTES // 2 + 1))))
        prepare(primary, observer)
        assert "more than the 268435456 bytes" in refused(primary, "prepare")
