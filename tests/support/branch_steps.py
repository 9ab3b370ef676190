"""Steps that schedules of distributed transactions are made of."""

from __future__ import annotations

from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import answered, declared
from txobserver.events import Event
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import BranchObserver, Content, Ledger, Observer
from txobserver.state.applied_content import AppliedContent
from txobserver.xid import Global, Xid

X = Xid(1, b"transfer", b"")
G = X.globally


def alone(**settings: float) -> tuple[MemoryCluster, MemoryNode]:
    """A cluster of one, which needs no other for its answers."""
    cluster = declared("q", "r", size=1, **settings)
    return cluster, cluster.primary


def ledger_of(node: MemoryNode) -> Ledger:
    """What a broker at the active primary may ask."""
    assert node.host.ledger
    ledger: Ledger = node.host.ledger
    return ledger


def content_of(node: MemoryNode) -> Content:
    """What a node knows, whether it serves or not."""
    return AppliedContent(node.core.replica.contents)


def work_on(
    node: MemoryNode,
    xid: Xid = X,
    queues: tuple[str, ...] = ("q", "r"),
    body: str = "t",
    takes: tuple[tuple[str, str], ...] = (),
) -> BranchObserver:
    """An open branch that publishes a message to each queue, and takes those (queue, body)."""
    host = node.host
    observer = ledger_of(node).begin_branch(xid)
    for queue in queues:
        node.report(lambda q=queue: observer.enqueue([host.number(q)], text(body)))  # type: ignore[misc]
    for queue, taken in takes:
        entry = host.entry(queue, taken)
        node.report(lambda q=queue, e=entry: observer.dequeue(host.number(q), [e]))  # type: ignore[misc]
    return observer


def prepare(node: MemoryNode, observer: BranchObserver, label: str = "prepare") -> None:
    node.report(lambda: observer.prepare(node.host.note(label)))


def branch_prepared(cluster: MemoryCluster, xid: Xid = X, takes: tuple[tuple[str, str], ...] = ()) -> None:
    """A prepared branch at the primary of the moment, answered."""
    primary = cluster.primary
    prepare(primary, work_on(primary, xid, body=f"t{xid.bqual.decode()}", takes=takes), f"prepare {xid}")
    answered(cluster, primary, f"prepare {xid}")


def decide(node: MemoryNode, commit: bool, xid: Xid = X, heuristic: bool = False, label: str = "decide") -> None:
    node.report(lambda: ledger_of(node).decide_branch(xid, commit, heuristic, node.host.note(label)))


def decide_globally(node: MemoryNode, commit: bool, globally: Global = G, label: str = "decide globally") -> None:
    node.report(lambda: ledger_of(node).decide_global(*globally, commit, node.host.note(label)))


def refused(node: MemoryNode, label: str) -> str:
    """The sentence that this request was refused with."""
    answer = node.host.answer(label)
    assert answer not in (None, "ok"), answer
    return str(answer)


def in_doubt(node: MemoryNode) -> list[Xid]:
    """The prepared branches that are listed here."""
    return [branch.xid for branch in content_of(node).branches()]


def outcome(node: MemoryNode, name: Xid | bytes = X) -> BranchOutcome:
    return content_of(node).outcome(name) if isinstance(name, Xid) else content_of(node).outcome_of_token(name)


def in_log(node: MemoryNode, kind: type[Event]) -> bool:
    """Whether such an event stands on this node's disk."""
    return any(isinstance(event, kind) for frame in node.disk.frames for event in frame.events())


def take_over(cluster: MemoryCluster, dies: MemoryNode) -> MemoryNode:
    """Kill this node, and turn until another one is the active primary."""
    cluster.kill(dies.name)
    cluster.held.clear()
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    return cluster.primary


def tokened(node: MemoryNode, token: bytes | None, body: str = "t") -> Observer:
    """An open transaction with a token and one message."""
    observer = ledger_of(node).begin(token)
    node.report(lambda: observer.enqueue([node.host.number("q")], text(body)))
    return observer


def one_phase(node: MemoryNode, xid: Xid = X, label: str = "one-phase") -> None:
    observer = work_on(node, xid)
    node.report(lambda: observer.commit_one_phase(node.host.note(label)))
