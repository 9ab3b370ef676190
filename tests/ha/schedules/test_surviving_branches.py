"""What must be true of branches on every node, and after every way to become primary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ha.apply.replica import Replica
from tests.support.branch_steps import (
    X,
    answered,
    branch_prepared,
    content_of,
    decide,
    in_doubt,
    ledger_of,
    outcome,
    prepare,
    take_over,
    work_on,
)
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import all_agree, backups_of, declared, publish, survivors_agree
from txobserver.configuration import queue_step
from txobserver.events import Configure, DtxOpen, DtxPrepare, Publish, Purge, TxDequeue, TxOpen
from txobserver.ids import offset_of
from txobserver.outcomes import BranchOutcome
from txobserver.ports.store import MemoryBase, Meta
from txobserver.xid import Xid

Y = Xid(2, b"another", b"")


def another_is_promoted(cluster: MemoryCluster) -> None:
    """From its memory."""
    name = cluster.primary.name
    take_over(cluster, cluster.primary)
    cluster.start(name)
    cluster.settled()


def all_start_from_checkpoints(cluster: MemoryCluster) -> None:
    cluster.pause(1)
    for name in list(cluster.nodes):
        cluster.kill(name)
        cluster.disks[name].frames.clear()
    for name in cluster.disks:
        cluster.start(name)
    cluster.settled()


def all_start_from_logs(cluster: MemoryCluster) -> None:
    for name in list(cluster.nodes):
        cluster.kill(name)
    for name in cluster.disks:
        cluster.start(name)
    cluster.settled()


def a_copy_is_promoted(cluster: MemoryCluster) -> None:
    """A node with a new store gets a snapshot, and outlives the others."""
    joiner, other = (node.name for node in backups_of(cluster))
    cluster.kill(joiner)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    cluster.primary.core.log_first = cluster.primary.core.replica.tail.sequence + 1
    cluster.start(joiner, wipe=True)
    cluster.settled()
    cluster.kill(other)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    take_over(cluster, cluster.primary)
    assert cluster.primary.name == joiner


WAYS = (another_is_promoted, all_start_from_checkpoints, all_start_from_logs, a_copy_is_promoted)
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@each_way
@pytest.mark.parametrize("commits", [True, False])
def test_heuristic_outcomes_no_longer_listed_after_a_promotion(
    commits: bool, way: Callable[[MemoryCluster], None]
) -> None:
    """A coordinator finds by ``recover`` what an operator decided, whichever node is primary, until it forgets it."""
    cluster = declared("q", "r", checkpoint_every=0.2)
    told = BranchOutcome.HEURISTICALLY_COMMITTED if commits else BranchOutcome.HEURISTICALLY_ROLLED_BACK
    for xid, heuristic in ((X, True), (Y, False)):
        branch_prepared(cluster, xid)
        decide(cluster.primary, commits, xid, heuristic, label=f"decide {xid}")
        answered(cluster, cluster.primary, f"decide {xid}")
    way(cluster)
    for node in cluster.nodes.values():
        assert content_of(node).heuristic_branches() == [X] and outcome(node) is told
        assert content_of(node).branches_of(*X.globally) == {X: told}
    primary = cluster.primary
    primary.report(lambda: ledger_of(primary).forget_branch(X, primary.host.note("forget")))
    answered(cluster, primary, "forget")
    survivors_agree(cluster) if len(cluster.nodes) == 3 else cluster.pause(0.2)
    assert all(content_of(node).heuristic_branches() == [] for node in cluster.nodes.values())


def purge(cluster: MemoryCluster, queue: str) -> None:
    primary = cluster.primary
    number = primary.host.number(queue)
    primary.report(lambda: ledger_of(primary).purge(number, (1 << 63) - 1, [], primary.host.note("purge")))
    answered(cluster, primary, "purge")


def held(node: MemoryNode, queue: str) -> list[bytes]:
    """What a node's queue holds."""
    number = content_of(node).configuration.queue_number(queue)
    assert number is not None
    return [entry.message.body for _, entry in content_of(node).page(number, -1, 100)]


@each_way
@pytest.mark.parametrize("commits", [True, False])
def test_locked_messages_purged(commits: bool, way: Callable[[MemoryCluster], None]) -> None:
    """What a prepared branch takes is its own until it is decided: a purge leaves it, on every node."""
    cluster = declared("q", "r", checkpoint_every=0.2)
    for body in ("taken", "goes"):
        publish(cluster.primary, "q", body)
        answered(cluster, cluster.primary, f"publish {body}")
    branch_prepared(cluster, takes=(("q", "taken"),))
    purge(cluster, "q")
    all_agree(cluster)
    assert {tuple(held(node, "q")) for node in cluster.nodes.values()} == {(b"taken",)}
    way(cluster)
    assert {tuple(held(node, "q")) for node in cluster.nodes.values()} == {(b"taken",)}
    assert in_doubt(cluster.primary) == [X]
    decide(cluster.primary, commits)
    answered(cluster, cluster.primary, "decide")
    cluster.pause(0.3)
    expected = (b"t",) if commits else (b"taken",)
    assert {tuple(held(node, "q")) for node in cluster.nodes.values()} == {expected}


def test_a_purge_on_its_way_when_the_branch_is_decided() -> None:
    """It goes by what is locked where it stands in the stream, on every node alike."""
    for commits in (True, False):
        cluster = declared("q", "r")
        publish(cluster.primary, "q", "taken")
        answered(cluster, cluster.primary, "publish taken")
        branch_prepared(cluster, takes=(("q", "taken"),))
        primary = cluster.primary
        number = primary.host.number("q")
        decide(primary, commits)
        primary.report(lambda p=primary, n=number: ledger_of(p).purge(n, 1 << 62, [], p.host.note("purge")))  # type: ignore[misc]
        for label in ("decide", "purge"):
            answered(cluster, primary, label)
        survivors_agree(cluster)
        assert {tuple(held(node, "q")) for node in cluster.nodes.values()} == {()}


@pytest.mark.parametrize("slow", ["disk of the primary", "disk of a backup", "acknowledgement"])
def test_prepared_told_early(slow: str) -> None:
    """P11, "A transaction" 4: prepared is what every node that counts has on disk; until then it is pending, and listed
    by no node: a take-over may find nothing of it."""
    cluster = declared("q", "r", prepare_timeout=60.0)
    primary, backup = cluster.primary, backups_of(cluster)[0]
    if slow == "acknowledgement":
        cluster.held.add((backup.name, primary.name))
    else:
        (primary if slow.endswith("primary") else backup).disk_held = True
    prepare(primary, work_on(primary))
    for _ in range(20):
        cluster.turn()
        assert primary.host.answer("prepare") is None and not primary.host.prepared
        assert outcome(primary) is BranchOutcome.PENDING
        for node in cluster.nodes.values():
            assert in_doubt(node) == [] and content_of(node).prepared_branch(X) is None
            assert outcome(node) is not BranchOutcome.PREPARED
    cluster.held.clear()
    primary.disk_held = backup.disk_held = False
    answered(cluster, primary, "prepare")
    assert (
        in_doubt(primary) == [X] and outcome(primary) is BranchOutcome.PREPARED and list(primary.host.prepared) == [X]
    )
    all_agree(cluster)
    assert all(in_doubt(node) == [X] for node in cluster.nodes.values())


def test_prepared_early_on_a_node_whose_log_is_cut() -> None:
    """A prepare that has not passed the commit point locks nothing yet, also when what stands behind it is cut off:
    a purge before it goes by what is locked where it stands (P7)."""
    queues = [replica_with_a_queue() for _ in range(2)]
    for replica, cut in zip(queues, (False, True), strict=True):
        offset = offset_of(replica.append(1, Publish(5, (1,), text("taken"))))
        replica.apply(replica.tail.sequence)
        for event in (
            DtxOpen(7, X),
            TxDequeue(7, 1, [(offset, 5)], 1),
            Purge(1, offset, []),
            DtxPrepare(7, 1, ["a"], 0),
            TxOpen(8),
        ):
            replica.append(1, event)
        if cut:
            replica.truncate(replica.tail.sequence - 1)
        assert replica.contents.table.branches() == [] and replica.contents.table.outcome(X) is BranchOutcome.PENDING
        replica.apply(replica.tail.sequence)
        assert replica.contents.messages.ids(1) == [] and [each.xid for each in replica.contents.table.branches()] == [
            X
        ]


def replica_with_a_queue() -> Replica:
    replica = Replica(MemoryBase(), Meta(), {})
    step = queue_step("q", False, {})
    replica.append(1, Configure(1, step.operation, step.name, step.arguments))
    replica.apply(1)
    return replica
