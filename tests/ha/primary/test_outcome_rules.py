"""The rules of global decisions, tokens and remembered outcomes, one a test; they run under the cluster's oracles."""

from __future__ import annotations

import pytest

from tests.support.branch_steps import (
    G,
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
    tokened,
    work_on,
)
from tests.support.memory_cluster import MemoryCluster
from tests.support.steps import (
    T,
    all_agree,
    answered,
    backups_of,
    commit,
    declared,
    survivors_agree,
    whole_or_absent,
)
from txobserver.events import DtxDecision, GlobalDecision, TxDecision
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import NameInUse
from txobserver.xid import Xid


class TestGlobally:
    def test_one_record_settles_every_prepared_branch(self) -> None:
        cluster = declared("q", "r")
        primary = cluster.primary
        xids = [Xid(*G, bqual) for bqual in (b"1", b"2")]
        stranger = Xid(G.format_id, b"another", b"1")
        for xid in (*xids, stranger):
            branch_prepared(cluster, xid)
        assert content_of(primary).global_outcome(*G) is BranchOutcome.UNKNOWN
        decide_globally(primary, commit=True)
        assert content_of(primary).global_outcome(*G) is BranchOutcome.PENDING and in_doubt(primary) == [stranger]
        answered(cluster, primary, "decide globally")
        all_agree(cluster)
        assert content_of(primary).global_outcome(*G) is BranchOutcome.COMMITTED
        assert content_of(primary).branches_of(*G) == dict.fromkeys(xids, BranchOutcome.COMMITTED)
        assert in_doubt(primary) == [stranger]
        assert sum(isinstance(e, GlobalDecision) for f in primary.disk.frames for e in f.events()) == 1

    @pytest.mark.parametrize("phases", [1, 2])
    @pytest.mark.parametrize("commits", [True, False])
    @pytest.mark.parametrize("when", ["on its way", "decided", "after a take-over", "after a restart"])
    def test_a_branch_that_is_late_is_refused(self, phases: int, commits: bool, when: str) -> None:
        cluster = declared("q", "r", checkpoint_every=0.2)
        decide_globally(cluster.primary, commits)
        if when != "on its way":
            answered(cluster, cluster.primary, "decide globally")
            cluster.pause(1)
        if when == "after a take-over":
            take_over(cluster, cluster.primary)
        if when == "after a restart":
            for name in list(cluster.nodes):
                cluster.kill(name)
                cluster.disks[name].frames.clear()
            for name in cluster.disks:
                cluster.start(name)
            cluster.settled()
        primary = cluster.primary
        observer = work_on(primary)
        if phases == 1:
            primary.report(lambda: observer.commit_one_phase(primary.host.note("late")))
        else:
            prepare(primary, observer, "late")
        assert "decided without it" in refused(primary, "late")
        cluster.pause(0.2)
        assert not whole_or_absent(cluster, *T) and in_doubt(primary) == []
        assert outcome(primary) is BranchOutcome.ROLLED_BACK

    @pytest.mark.parametrize("commits", [True, False])
    def test_a_branch_whose_prepare_is_on_its_way_follows(self, commits: bool) -> None:
        cluster = declared("q", "r")
        primary, *backups = cluster.primary, *backups_of(cluster)
        for backup in backups:
            cluster.held.add((primary.name, backup.name))
        prepare(primary, work_on(primary))
        decide_globally(primary, commits)
        cluster.held.clear()
        cluster.run(lambda: primary.host.answer("prepare") is not None)
        survivors_agree(cluster)
        assert whole_or_absent(cluster, *T) is commits and in_doubt(primary) == []
        assert primary.host.answer("decide globally") == "ok"
        assert (primary.host.answer("prepare") == "ok") is commits

    def test_it_is_decided_once(self) -> None:
        cluster, primary = alone()
        branch_prepared(cluster)
        decide_globally(primary, True, label="first")
        decide_globally(primary, True, label="same")
        decide_globally(primary, False, label="other")
        assert "decided to commit" in refused(primary, "other")
        for label in ("first", "same"):
            answered(cluster, primary, label)
        decide_globally(primary, True, label="much later")
        assert primary.host.answer("much later") == "ok"
        assert "decided to commit" in refused(primary, "other"), "and not answered once more"

    def test_what_an_operator_decided_otherwise_is_told(self) -> None:
        cluster, primary = alone()
        one, other = Xid(*G, b"1"), Xid(*G, b"2")
        branch_prepared(cluster, one)
        decide(primary, False, one, heuristic=True)
        decide_globally(primary, True)
        answered(cluster, primary, "decide globally")
        assert content_of(primary).global_outcome(*G) is BranchOutcome.HEURISTICALLY_ROLLED_BACK
        primary.report(lambda: ledger_of(primary).forget_global(*G, primary.host.note("forget")))
        answered(cluster, primary, "forget")
        branch_prepared(cluster, other)
        decide_globally(primary, True, label="again")
        answered(cluster, primary, "again")
        assert content_of(primary).global_outcome(*G) is BranchOutcome.MIXED

    def test_a_forgotten_one_fences_no_more(self) -> None:
        cluster, primary = alone()
        primary.report(lambda: ledger_of(primary).forget_global(*G, primary.host.note("too early")))
        assert "no decision" in refused(primary, "too early")
        decide_globally(primary, False)
        primary.report(lambda: ledger_of(primary).forget_global(*G, primary.host.note("forget")))
        answered(cluster, primary, "forget")
        assert content_of(primary).global_outcome(*G) is BranchOutcome.UNKNOWN
        branch_prepared(cluster)


class TestTokens:
    @pytest.mark.parametrize("late", [False, True])
    @pytest.mark.parametrize("commits", [True, False])
    def test_the_outcome_of_a_transaction_with_one(self, commits: bool, late: bool) -> None:
        cluster = declared("q", "r")
        primary = cluster.primary
        assert outcome(primary, b"mine") is BranchOutcome.UNKNOWN
        observer = tokened(primary, None if late else b"mine")
        if late:
            primary.report(lambda: observer.name(b"mine"))
        assert outcome(primary, b"mine") is BranchOutcome.ACTIVE
        if commits:
            commit(primary, observer)
            assert outcome(primary, b"mine") is BranchOutcome.PENDING
            answered(cluster, primary)
        else:
            primary.report(observer.rollback)
        survivors_agree(cluster)
        told = {outcome(node, b"mine") for node in cluster.nodes.values()}
        assert told == {BranchOutcome.COMMITTED if commits else BranchOutcome.ROLLED_BACK}

    def test_one_that_is_aborted_at_failover_was_rolled_back(self) -> None:
        cluster = declared("q", "r")
        primary = cluster.primary
        tokened(primary, b"mine")
        cluster.pause(0.2)
        new = take_over(cluster, primary)
        assert outcome(new, b"mine") is BranchOutcome.ROLLED_BACK
        again = tokened(new, b"mine")
        commit(new, again, "again")
        answered(cluster, new, "again")
        assert outcome(new, b"mine") is BranchOutcome.COMMITTED and new.host.bodies("q") == ["t"]

    def test_one_that_committed_is_in_use(self) -> None:
        """So a client that does not know whether it has done something can try to do it again."""
        cluster, primary = alone()
        commit(primary, tokened(primary, b"mine"))
        with pytest.raises(NameInUse):
            ledger_of(primary).begin(b"mine")
        answered(cluster, primary)
        with pytest.raises(NameInUse):
            ledger_of(primary).begin(b"mine")

    @pytest.mark.parametrize("token", [b"", b"x" * 65])
    def test_its_length(self, token: bytes) -> None:
        _, primary = alone()
        with pytest.raises(ValueError, match="1 to 64 bytes"):
            ledger_of(primary).begin(token)

    def test_a_transaction_has_one(self) -> None:
        _, primary = alone()
        observer = tokened(primary, b"mine")
        with pytest.raises(ValueError, match="a token already"):
            observer.name(b"another")

    def test_a_plain_transaction_leaves_nothing_behind(self) -> None:
        cluster, primary = alone()
        commit(primary, tokened(primary, None))
        answered(cluster, primary)
        assert primary.core.replica.contents.table.outcomes.meta.count == 0
        assert in_log(primary, TxDecision) and not in_log(primary, DtxDecision)


class TestExpiry:
    def commit_some(self, cluster: MemoryCluster, count: int, gtrid: bytes = b"g", rest: float = 0) -> None:
        for number in range(count):
            label = f"branch {gtrid.decode()} {number}"
            one_phase(cluster.primary, Xid(1, gtrid, b"%d" % number), label)
            answered(cluster, cluster.primary, label)
            cluster.pause(rest)

    @pytest.mark.parametrize(("settings", "more"), [({"outcomes_kept": 2}, 0), ({"outcome_seconds": 2.0}, 9)])
    def test_by_number_and_by_age_on_all_nodes_alike(self, settings: dict[str, float], more: int) -> None:
        """By age: as the times of decisions go on, each by a tenth of it at most."""
        cluster = declared("q", "r", **settings)
        self.commit_some(cluster, 2)
        cluster.pause(3)
        self.commit_some(cluster, more, b"more", rest=0.3)
        assert outcome(cluster.primary, Xid(1, b"g", b"0")) is BranchOutcome.COMMITTED
        assert outcome(cluster.primary, Xid(1, b"never", b"")) is BranchOutcome.UNKNOWN
        one_phase(cluster.primary, X)
        answered(cluster, cluster.primary, "one-phase")
        survivors_agree(cluster)
        for node in cluster.nodes.values():
            assert outcome(node, Xid(1, b"g", b"0")) is BranchOutcome.EXPIRED
            assert outcome(node) is BranchOutcome.COMMITTED
            assert outcome(node, Xid(1, b"never", b"")) is BranchOutcome.EXPIRED, (
                "it cannot be told from an expired one"
            )
            assert outcome(node, b"never") is BranchOutcome.UNKNOWN, "no token has expired"

    def test_a_low_water_mark_outlives_restart_and_copy(self) -> None:
        cluster = declared("q", "r", outcomes_kept=1, checkpoint_every=0.2)
        self.commit_some(cluster, 3)
        cluster.pause(1)
        away = backups_of(cluster)[0].name
        cluster.kill(away)
        cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
        cluster.primary.core.log_first = cluster.primary.core.replica.tail.sequence + 1
        cluster.start(away, wipe=True)
        survivors_agree(cluster)
        cluster.pause(1)
        for name in list(cluster.nodes):
            cluster.kill(name)
            cluster.disks[name].frames.clear()
        for name in cluster.disks:
            cluster.start(name)
        survivors_agree(cluster)
        assert {outcome(node, Xid(1, b"g", b"0")) for node in cluster.nodes.values()} == {BranchOutcome.EXPIRED}

    def test_a_global_decision_expires_as_such(self) -> None:
        cluster, primary = alone(outcomes_kept=1)
        for label in ("one", "two"):
            decide_globally(primary, True, G._replace(gtrid=label.encode()), label)
            answered(cluster, primary, label)
        assert content_of(primary).global_outcome(1, b"one") is BranchOutcome.EXPIRED
        assert content_of(primary).global_outcome(1, b"two") is BranchOutcome.COMMITTED
