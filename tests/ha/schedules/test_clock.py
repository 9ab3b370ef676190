"""Schedules in which wall clocks jump, and differ from node to node: what is remembered stays remembered."""

from __future__ import annotations

import pytest

from tests.support.branch_steps import (
    G,
    X,
    branch_prepared,
    content_of,
    decide_globally,
    one_phase,
    outcome,
    prepare,
    refused,
    take_over,
    tokened,
    work_on,
)
from tests.support.memory_cluster import MemoryCluster
from tests.support.steps import answered, commit, declared, survivors_agree
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import NameInUse
from txobserver.xid import Xid

DAYS = 3 * 86_400.0
EARLY = Xid(2, b"early", b"")


def decide_some(cluster: MemoryCluster, label: str) -> Xid:
    """A branch in one phase, at the primary of the moment."""
    xid = Xid(3, label.encode(), b"")
    one_phase(cluster.primary, xid, label)
    answered(cluster, cluster.primary, label)
    return xid


def remembered_everywhere(cluster: MemoryCluster, xids: list[Xid]) -> None:
    survivors_agree(cluster)
    for node in cluster.nodes.values():
        assert {outcome(node, xid) for xid in xids} == {BranchOutcome.COMMITTED}
        assert outcome(node, b"token") is BranchOutcome.COMMITTED
        assert content_of(node).global_outcome(*G) is BranchOutcome.COMMITTED


def with_outcomes(cluster: MemoryCluster) -> None:
    """A token, a branch and a global decision."""
    commit(cluster.primary, tokened(cluster.primary, b"token"))
    answered(cluster, cluster.primary)
    one_phase(cluster.primary, EARLY, "early")
    branch_prepared(cluster, X)
    decide_globally(cluster.primary, commit=True)
    for label in ("early", "decide globally"):
        answered(cluster, cluster.primary, label)


@pytest.mark.parametrize("jump", [DAYS, -DAYS])
def test_clock_jump_forgets_outcomes(jump: float) -> None:
    """P6, DTX: one jump of the primary's wall clock would expire every outcome, and every fence, for good."""
    cluster = declared("q", "r")
    cluster.wall_off.update(dict.fromkeys(cluster.nodes, 9 * DAYS))
    with_outcomes(cluster)
    cluster.wall_off[cluster.primary.name] += jump
    xids = [EARLY, decide_some(cluster, "in the jump")]
    cluster.wall_off.update(dict.fromkeys(cluster.nodes, 9 * DAYS))
    xids += [decide_some(cluster, f"behind it {number}") for number in range(3)]
    remembered_everywhere(cluster, xids)
    primary = cluster.primary
    late = work_on(primary, Xid(*G, b"late"))
    prepare(primary, late, "late")
    assert "decided without it" in refused(primary, "late"), "the fence stands"
    with pytest.raises(NameInUse):
        work_on(primary, EARLY)


def test_clocks_that_differ_by_days_at_each_promotion() -> None:
    """Every node has a wall clock of its own, and each becomes primary."""
    cluster = declared("q", "r")
    cluster.wall_off.update(zip(sorted(cluster.nodes), (9 * DAYS, 10 * DAYS, 8 * DAYS), strict=True))
    with_outcomes(cluster)
    xids, former = [EARLY], set()
    for number in range(6):
        xids.append(decide_some(cluster, f"of primary {number}"))
        name = cluster.primary.name
        former.add(name)
        take_over(cluster, cluster.primary)
        cluster.start(name)
        remembered_everywhere(cluster, xids)
    assert len(former) > 1


def test_in_the_end_outcomes_expire_after_a_jump_too() -> None:
    cluster = declared("q", "r", outcome_seconds=2.0)
    cluster.wall_off[cluster.primary.name] = DAYS
    first = decide_some(cluster, "first")
    for number in range(12):
        cluster.pause(0.25)
        decide_some(cluster, f"more {number}")
    survivors_agree(cluster)
    assert {outcome(node, first) for node in cluster.nodes.values()} == {BranchOutcome.EXPIRED}
