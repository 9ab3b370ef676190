"""Named schedules of PROTOCOL about branches that meet a crash, a take-over, a joiner; under the cluster's oracles."""

from __future__ import annotations

import pytest

from ha.messages.stream import Cancel
from tests.ha.schedules.test_joiner import force_resync, session_of, without_one
from tests.support.branch_steps import (
    G,
    X,
    branch_prepared,
    decide,
    decide_globally,
    in_doubt,
    in_log,
    ledger_of,
    outcome,
    prepare,
    refused,
    take_over,
    work_on,
)
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_host import text
from tests.support.steps import (
    T,
    all_agree,
    answered,
    backups_of,
    commit,
    declared,
    prepared,
    publish,
    survivors_agree,
    whole_or_absent,
)
from txobserver.events import DtxDecision, DtxPrepare, GlobalDecision
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Global, Xid


def settle(cluster: MemoryCluster, commits: bool) -> None:
    """Decide the branch at the primary of the moment; it ends as decided, everywhere."""
    decide(cluster.primary, commits, label="settle")
    answered(cluster, cluster.primary, "settle")
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T) is commits and in_doubt(cluster.primary) == []


@pytest.mark.parametrize("turns", range(10))
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_node_dies_while_a_branch_prepares(victim: int, turns: int) -> None:
    """0 is the primary. The branch is prepared or was never there; if its prepare was answered, it is prepared."""
    cluster = declared("q", "r")
    nodes = [cluster.primary, *backups_of(cluster)]
    primary = nodes[0]
    prepare(primary, work_on(primary))
    for _ in range(turns):
        cluster.turn()
    take_over(cluster, nodes[victim])
    cluster.pause(0.5)
    told = primary.host.answer("prepare")
    assert told in (None, "ok") and not whole_or_absent(cluster, *T)
    listed = in_doubt(cluster.primary) == [X]
    assert listed or told is None
    cluster.start(nodes[victim].name)
    all_agree(cluster)
    if listed:
        settle(cluster, commits=True)
    else:
        assert outcome(cluster.primary) in (BranchOutcome.UNKNOWN, BranchOutcome.ROLLED_BACK)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("turns", range(10))
def test_the_primary_dies_while_a_branch_is_decided(turns: int, commits: bool) -> None:
    """What was answered stands. What was not is as it was, or is decided so; then the coordinator asks again."""
    cluster = declared("q", "r")
    branch_prepared(cluster)
    primary = cluster.primary
    decide(primary, commits)
    for _ in range(turns):
        cluster.turn()
    new = take_over(cluster, primary)
    wanted = BranchOutcome.COMMITTED if commits else BranchOutcome.ROLLED_BACK
    told = primary.host.answer("decide")
    assert outcome(new) in ((wanted,) if told == "ok" else (wanted, BranchOutcome.PREPARED))
    assert whole_or_absent(cluster, *T) is (outcome(new) is BranchOutcome.COMMITTED)
    cluster.start(primary.name)
    all_agree(cluster)
    if in_doubt(new):
        settle(cluster, commits)
    assert outcome(new) is wanted


def test_a_prepared_branch_outlives_all_nodes() -> None:
    cluster = declared("q", "r", checkpoint_every=0.2)
    branch_prepared(cluster)
    cluster.pause(1)
    for name in list(cluster.nodes):
        cluster.kill(name)
    for disk in cluster.disks.values():
        disk.frames = [f for f in disk.frames if f.last > disk.base.meta.applied.sequence]
    for name in cluster.disks:
        cluster.start(name)
    all_agree(cluster)
    assert in_doubt(cluster.primary) == [X] and outcome(cluster.primary) is BranchOutcome.PREPARED
    settle(cluster, commits=True)


def test_what_a_prepared_branch_takes_is_in_nobody_s_hands_after_a_take_over() -> None:
    """It is listed as locked, no purge takes it away, and it leaves its queue with the commit."""
    cluster = declared("q", "r")
    primary = cluster.primary
    for body in ("in", "other"):
        publish(primary, "q", body)
        answered(cluster, primary, f"publish {body}")
    entry = primary.host.entry("q", "in")
    branch_prepared(cluster, takes=(("q", "in"),))
    new = take_over(cluster, primary)
    number = new.host.number("q")
    assert new.core.replica.contents.table.branches()[0].locked == {number: [entry]}
    new.report(lambda: ledger_of(new).purge(number, (1 << 63) - 1, [], new.host.note("purge")))
    answered(cluster, new, "purge")
    assert new.host.bodies("q") == ["in"]
    cluster.start(primary.name)
    settle(cluster, commits=True)
    assert new.host.bodies("q") == ["t"] and new.host.ended == [(X, True)]


def test_dtx_rollback_answered_at_once() -> None:
    """A rollback that reached no backup: it is not answered, and the next primary finds the branch prepared."""
    cluster = declared("q", "r")
    branch_prepared(cluster)
    primary = cluster.primary
    for backup in backups_of(cluster):
        cluster.held.add((primary.name, backup.name))
    decide(primary, commit=False)
    cluster.run(lambda: in_log(primary, DtxDecision))
    cluster.pause(0.05)
    assert primary.host.answer("decide") is None and outcome(primary) is BranchOutcome.PENDING
    new = take_over(cluster, primary)
    assert in_doubt(new) == [X]
    cluster.start(primary.name)
    settle(cluster, commits=True)


def test_dtx_failed_vote_answered_at_once() -> None:
    """A participant fails when another has the prepare on its disk: "failed" waits until no node can find it there."""
    cluster = declared("q", "r")
    primary, holder, other = cluster.primary, *backups_of(cluster)
    observer = work_on(primary)
    cluster.held.add((other.name, primary.name))
    prepare(primary, observer)
    cluster.run(lambda: in_log(holder, DtxPrepare))
    cluster.held.add((primary.name, holder.name))
    backup = other.core.following.backup
    assert backup is not None
    cancel = Cancel(backup.generation, backup.session, observer.tx, "its disk is gone")
    primary.report(lambda: primary.core.on_message(other.name, cancel))
    cluster.run(lambda: in_log(primary, DtxDecision))
    cluster.pause(0.05)
    assert primary.host.answer("prepare") is None
    cluster.held.clear()
    cluster.run(lambda: primary.host.answer("prepare") is not None)
    assert "its disk is gone" in refused(primary, "prepare")
    new = take_over(cluster, primary)
    assert in_doubt(new) == [] and outcome(new) is BranchOutcome.ROLLED_BACK
    cluster.start(primary.name)
    survivors_agree(cluster)


def test_a_failed_vote_that_reached_nobody_leaves_the_branch_prepared() -> None:
    cluster = declared("q", "r")
    primary, holder, other = cluster.primary, *backups_of(cluster)
    observer = work_on(primary)
    for backup in (holder, other):
        cluster.held.add((backup.name, primary.name))
    prepare(primary, observer)
    cluster.run(lambda: in_log(holder, DtxPrepare) and in_log(other, DtxPrepare))
    for backup in (holder, other):
        cluster.held.add((primary.name, backup.name))
    primary.report(lambda: primary.core.leading.primary.decisions.cancel(observer.tx, "its disk is gone"))  # type: ignore[union-attr]
    cluster.run(lambda: in_log(primary, DtxDecision))
    new = take_over(cluster, primary)
    assert primary.host.answer("prepare") is None and in_doubt(new) == [X]
    cluster.start(primary.name)
    settle(cluster, commits=False)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_branch_dangles_on_a_returning_node(copies: bool, commits: bool) -> None:
    """It was prepared there; it was decided while the node was away: by its log or by a copy, it ends there too."""
    cluster = declared("q", "r")
    branch_prepared(cluster)
    primary, _, away = cluster.primary, *backups_of(cluster)
    cluster.kill(away.name)
    decide(primary, commits)
    answered(cluster, primary, "decide")
    if copies:
        force_resync(primary)
    away = cluster.start(away.name)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T) is commits and in_doubt(away) == []
    assert outcome(away) is outcome(primary)


def test_a_branch_that_only_a_returning_node_holds_is_gone() -> None:
    """The primary alone had the prepare when it died. It comes back, cuts it off, and lists nothing."""
    cluster = declared("q", "r")
    primary = cluster.primary
    observer = work_on(primary)
    cluster.pause(0.1)
    for backup in backups_of(cluster):
        cluster.held.add((primary.name, backup.name))
    prepare(primary, observer)
    cluster.run(lambda: in_log(primary, DtxPrepare))
    new = take_over(cluster, primary)
    assert in_doubt(new) == [] and outcome(new) is BranchOutcome.ROLLED_BACK, "aborted at failover: it was not prepared"
    back = cluster.start(primary.name)
    survivors_agree(cluster)
    assert in_doubt(back) == [] and outcome(back) is BranchOutcome.ROLLED_BACK


@pytest.mark.parametrize("wipe", [False, True])
def test_an_undecided_branch_does_not_keep_a_joiner_from_ready(wipe: bool) -> None:
    """prepared_branch_blocks_joiner: the coordinator is slow; the joiner becomes ready, and holds the branch itself."""
    cluster, primary, other, name = without_one()
    branch_prepared(cluster)
    if wipe:
        force_resync(primary)
    joiner = cluster.start(name, wipe=wipe)
    cluster.settled()
    assert session_of(primary, name).trackers.clear and in_doubt(joiner) == [X]
    for each in (primary.name, other.name):
        cluster.kill(each)
    cluster.run(lambda: joiner.state == "active")
    assert in_doubt(joiner) == [X]
    decide(joiner, commit=True)
    answered(cluster, joiner, "decide")
    assert whole_or_absent(cluster, *T)


def test_a_branch_is_decided_while_a_joiner_copies() -> None:
    cluster, primary, _, name = without_one(messages=4)
    branch_prepared(cluster)
    force_resync(primary)
    joiner = cluster.start(name, wipe=True)
    cluster.run(lambda: joiner.core.replica.resyncing)
    decide(primary, commit=True)
    answered(cluster, primary, "decide")
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T) and outcome(joiner) is BranchOutcome.COMMITTED


def test_a_joiner_first_drops_its_own_prepared_branches() -> None:
    cluster = declared("q", "r", checkpoint_every=0.2)
    branch_prepared(cluster)
    cluster.pause(1)
    primary, _, away = cluster.primary, *backups_of(cluster)
    cluster.kill(away.name)
    decide(primary, commit=True)
    answered(cluster, primary, "decide")
    force_resync(primary)
    away = cluster.start(away.name)
    assert in_doubt(away) == [X], "from its checkpoint"
    cluster.run(lambda: away.core.replica.resyncing)
    assert prepared(away) is False and in_doubt(away) == []
    survivors_agree(cluster)


def test_the_outcome_of_a_branch_told_too_early() -> None:
    """outcome_told_too_early: decided on the primary and on one backup, it is PENDING, and nothing of it is there."""
    cluster = declared("q", "r")
    branch_prepared(cluster)
    primary, other, slow = cluster.primary, *backups_of(cluster)
    cluster.held.add((primary.name, slow.name))
    decide(primary, commit=True)
    cluster.run(lambda: in_log(other, DtxDecision))
    cluster.pause(0.1)
    assert outcome(primary) is BranchOutcome.PENDING and primary.host.answer("decide") is None
    assert not whole_or_absent(cluster, *T) and in_doubt(primary) == []
    cluster.held.clear()
    answered(cluster, primary, "decide")
    assert outcome(primary) is BranchOutcome.COMMITTED


def remembered_everywhere(cluster: MemoryCluster) -> None:
    """Outcomes of every kind: two branches, a heuristic one, a global decision, a token."""
    primary = cluster.primary
    branches = [X._replace(bqual=bqual) for bqual in (b"1", b"2", b"3")]
    for xid in branches:
        branch_prepared(cluster, xid)
    decide(primary, True, branches[0], label="first")
    decide(primary, False, branches[1], heuristic=True, label="second")
    decide_globally(primary, True)
    observer = ledger_of(primary).begin(b"token")
    primary.report(lambda: observer.enqueue([primary.host.number("q")], text("tokened")))
    commit(primary, observer)
    for label in ("first", "second", "decide globally", "commit"):
        answered(cluster, primary, label)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_outcome_table_not_in_snapshot(checkpoint: bool) -> None:
    """A joiner copies, and becomes primary: it tells every outcome that the one before it knew."""
    cluster, primary, other, name = without_one()
    remembered_everywhere(cluster)
    force_resync(primary)
    joiner = cluster.start(name, wipe=True)
    survivors_agree(cluster)
    if checkpoint:
        cluster.pause(cluster.settings.checkpoint_every + 0.1)
        cluster.kill(name)
        cluster.disks[name].frames.clear()
        joiner = cluster.start(name)
        survivors_agree(cluster)
    for each in (primary.name, other.name):
        cluster.kill(each)
    cluster.run(lambda: joiner.state == "active")
    told = [outcome(joiner, X._replace(bqual=bqual)) for bqual in (b"1", b"2", b"3")]
    assert told == [BranchOutcome.COMMITTED, BranchOutcome.HEURISTICALLY_ROLLED_BACK, BranchOutcome.COMMITTED]
    assert joiner.core.replica.contents.table.global_outcome(Global(*G)) is BranchOutcome.MIXED
    assert outcome(joiner, b"token") is BranchOutcome.COMMITTED
    assert joiner.core.replica.contents.table.outcomes.heuristics.keys() == {X._replace(bqual=b"2")}


def test_heuristic_at_one_node() -> None:
    """An operator decides at the primary: every node remembers it, and a coordinator that comes late is told."""
    cluster = declared("q", "r")
    branch_prepared(cluster)
    primary = cluster.primary
    decide(primary, commit=False, heuristic=True)
    answered(cluster, primary, "decide")
    new = take_over(cluster, primary)
    assert outcome(new) is BranchOutcome.HEURISTICALLY_ROLLED_BACK
    decide(new, commit=True, label="late")
    assert "not prepared" in refused(new, "late") and not whole_or_absent(cluster, *T)
    back = cluster.start(primary.name)
    survivors_agree(cluster)
    new.report(lambda: ledger_of(new).forget_branch(X, new.host.note("forget")))
    answered(cluster, new, "forget")
    survivors_agree(cluster)
    assert outcome(new) is outcome(back) is BranchOutcome.UNKNOWN


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("turns", range(8))
def test_the_primary_dies_while_a_gtrid_is_decided(turns: int, commits: bool) -> None:
    """All of its branches are decided by the one record, or all of them stay prepared."""
    cluster = declared("q", "r")
    primary = cluster.primary
    xids = [Xid(G.format_id, G.gtrid, bqual) for bqual in (b"1", b"2", b"3")]
    for xid in xids:
        branch_prepared(cluster, xid)
    decide_globally(primary, commits)
    for _ in range(turns):
        cluster.turn()
    new = take_over(cluster, primary)
    wanted = BranchOutcome.COMMITTED if commits else BranchOutcome.ROLLED_BACK
    told = {outcome(new, xid) for xid in xids}
    assert told in ({wanted}, {BranchOutcome.PREPARED})
    if told == {BranchOutcome.PREPARED}:
        assert primary.host.answer("decide globally") is None
        decide_globally(new, commits, label="again")
        answered(cluster, new, "again")
    assert {outcome(new, xid) for xid in xids} == {wanted}
    cluster.start(primary.name)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, ("q", "t1"), ("r", "t2"), ("q", "t3")) is commits


def test_the_next_primary_makes_the_decisions_that_a_global_one_lacks() -> None:
    """The record came when a prepare was on its way, and the primary died before the branch could follow it."""
    cluster = declared("q", "r")
    primary, *backups = cluster.primary, *backups_of(cluster)
    observer = work_on(primary)
    for backup in backups:
        cluster.held.add((backup.name, primary.name))
    prepare(primary, observer)
    cluster.run(lambda: all(in_log(backup, DtxPrepare) for backup in backups))
    decide_globally(primary, commit=True)
    cluster.run(lambda: all(in_log(backup, GlobalDecision) for backup in backups))
    assert not any(in_log(backup, DtxDecision) for backup in backups)
    new = take_over(cluster, primary)
    cluster.run(lambda: outcome(new) is BranchOutcome.COMMITTED)
    cluster.start(primary.name)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T)
