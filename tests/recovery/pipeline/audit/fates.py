"""Branches of every fate that is no breach, at the primary of a cluster in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.names import FORMAT_ID
from recovery.coordinator.resources import Participant
from recovery.pipeline.queues.names import Batch
from tests.support.branch_steps import decide, decide_globally, in_log, ledger_of, prepare, refused, work_on
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import answered
from txobserver.events import DtxDecision, DtxPrepare, GlobalDecision
from txobserver.ports.ledger import BranchObserver
from txobserver.xid import Global, Xid

QUEUES = ("left", "right")


def named(name: str, bqual: str = "") -> Xid:
    """A branch of a coordinator that is not ours."""
    return Xid(1, b"run:" + name.encode(), bqual.encode())


COMMITTED, ROLLED_BACK = named("committed"), named("rolled back")
BY_OPERATOR, GLOBALLY = named("operator"), named("globally")
DOUBT = named("doubt")
PAIR = (named("pair", "a"), named("pair", "b"))
MIXED, SIBLING = named("mixed", "a"), named("mixed", "b")
AGAIN = named("again")
ONCE_MORE = named("once more", "a"), named("once more", "b")
LATE, SLOW, RACED = named("late"), named("slow"), named("raced")
CUT, LATER = named("cut"), named("later")
WINNER, LOSER, ZOMBIE = (Batch("query", 7).branch(name) for name in ("0.0.winner", "0.1.loser", "0.2.zombie"))
LOGGED, LOGGED_DOUBT = (Xid(FORMAT_ID, b"whose.1.%d" % which, b"broker") for which in (1, 2))


def in_every_way(cluster: MemoryCluster) -> None:
    """Of each fate one, all within a generation. LATER and the two in doubt are left prepared."""
    node = cluster.primary
    alone = (COMMITTED, ROLLED_BACK, BY_OPERATOR, GLOBALLY, DOUBT, LATER, LOGGED, LOGGED_DOUBT)
    for xid in (*alone, *PAIR, MIXED, SIBLING, WINNER, LOSER):
        _prepared(cluster, xid)
    for xid in (COMMITTED, *PAIR, SIBLING, WINNER, LOGGED):
        _decided(cluster, xid, commit=True)
    _decided(cluster, ROLLED_BACK, commit=False)
    for xid in (BY_OPERATOR, MIXED):
        _decided(cluster, xid, commit=False, heuristic=True)
    _globally(cluster, GLOBALLY.globally, commit=True)
    for xid, commit in ((ZOMBIE, False), (LATE, True)):
        observer = _begun(node, xid)
        _globally(cluster, xid.globally, commit)
        prepare(node, observer, f"late {xid}")
        cluster.run(lambda label=f"late {xid}": node.host.answer(label) is not None)  # type: ignore[misc]
        refused(node, f"late {xid}")
    for commit in (False, True):  # a name that is free again
        _prepared(cluster, AGAIN)
        _decided(cluster, AGAIN, commit)
    slow = _begun(node, SLOW)
    for xid in (SLOW, ONCE_MORE[0]):
        _globally(cluster, xid.globally, commit=False)
        node.report(lambda g=xid.globally: ledger_of(node).forget_global(*g, node.host.note(f"forget {g}")))  # type: ignore[misc]
        answered(cluster, node, f"forget {xid.globally}")
    prepare(node, slow, "slow")
    answered(cluster, node, "slow")
    _decided(cluster, SLOW, commit=True)
    for xid, commit in zip(ONCE_MORE, (False, True), strict=True):  # one attempt after the other
        _prepared(cluster, xid)
        _decided(cluster, xid, commit)


def in_one_phase(cluster: MemoryCluster) -> None:
    """RACED is on its way to a commit in one phase when its global transaction is decided to roll back."""
    node = cluster.primary
    links = {(each.name, node.name) for each in cluster.nodes.values() if each is not node}
    cluster.held.update(links)
    observer = _begun(node, RACED)
    node.report(lambda: observer.commit_one_phase(node.host.note("raced")))
    decide_globally(node, False, RACED.globally, "raced globally")
    cluster.held.difference_update(links)
    for label in ("raced", "raced globally"):
        answered(cluster, node, label)


def decision_cut_off(cluster: MemoryCluster) -> None:
    """CUT's global transaction is decided; its branch has no decision when its primary is about to die."""
    node = cluster.primary
    backups = [each for each in cluster.nodes.values() if each is not node]
    prepares, decisions = (partial(_count, kind=kind) for kind in (DtxPrepare, GlobalDecision))
    expected = prepares(node) + 1, decisions(node) + 1
    observer = _begun(node, CUT)
    cluster.held.update((backup.name, node.name) for backup in backups)
    prepare(node, observer, "cut off")
    cluster.run(lambda: all(prepares(backup) == expected[0] for backup in backups))
    decide_globally(node, True, CUT.globally, "cut off too")
    cluster.run(lambda: all(decisions(backup) == expected[1] for backup in backups))


def later(cluster: MemoryCluster) -> None:
    """The decision on LATER comes from another primary than its prepare."""
    assert in_log(cluster.primary, DtxDecision)
    _globally(cluster, LATER.globally, commit=True)


def log_of_decisions(path: Path, commit: bool = True) -> Path:
    """A coordinator's decision log on LOGGED and LOGGED_DOUBT."""
    log = DecisionLog(path)
    for xid in (LOGGED, LOGGED_DOUBT):
        log.decide(xid.gtrid.decode(), commit, [Participant("amqp:c", "broker")])
    log.decide("whose.1.3", True, [Participant("amqp:c", "broker")])
    log.finish("whose.1.3")
    return path


def _count(node: MemoryNode, kind: type) -> int:
    return sum(isinstance(event, kind) for frame in node.disk.frames for event in frame.events())


def _begun(node: MemoryNode, xid: Xid) -> BranchObserver:
    return work_on(node, xid, QUEUES, f"b{xid.gtrid.decode()}{xid.bqual.decode()}")


def _prepared(cluster: MemoryCluster, xid: Xid) -> None:
    node, label = cluster.primary, f"prepare {xid} of {_count(cluster.primary, DtxPrepare)}"
    prepare(node, _begun(node, xid), label)
    answered(cluster, node, label)


def _decided(cluster: MemoryCluster, xid: Xid, commit: bool, heuristic: bool = False) -> None:
    node, label = cluster.primary, f"decide {xid} of {_count(cluster.primary, DtxDecision)}"
    decide(node, commit, xid, heuristic, label)
    answered(cluster, node, label)


def _globally(cluster: MemoryCluster, globally: Global, commit: bool) -> None:
    decide_globally(cluster.primary, commit, globally, f"globally {globally}")
    answered(cluster, cluster.primary, f"globally {globally}")
