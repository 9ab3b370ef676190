"""Steps that schedules are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ha.messages.stream import Entries
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from txobserver.events import Event
from txobserver.frames import decode_frame
from txobserver.ports.ledger import Observer


def declared(*queues: str, size: int = 3, **settings: Any) -> MemoryCluster:
    """A cluster in which every node is ready and these queues exist."""
    cluster = MemoryCluster(size, **settings).settled()
    declare(cluster, *queues)
    return cluster


def declare(cluster: MemoryCluster, *queues: str) -> None:
    """Turn until these queues exist."""
    host = cluster.primary.host
    for queue in queues:
        cluster.primary.report(lambda q=queue: host.declare(q))  # type: ignore[misc]
    cluster.run(lambda: all(host.answer(f"declare {queue}") == "ok" for queue in queues))


def begin(node: MemoryNode, queues: dict[str, list[str]], acks: dict[str, list[str]] | None = None) -> Observer:
    """An open transaction that publishes these bodies and acknowledges those messages."""
    host = node.host
    assert host.ledger
    observer: Observer = host.ledger.begin()
    for queue, bodies in queues.items():
        for body in bodies:
            node.report(lambda q=queue, b=body: observer.enqueue([host.number(q)], text(b)))  # type: ignore[misc]
    for queue, bodies in (acks or {}).items():
        entries = [host.entry(queue, body) for body in bodies]
        node.report(lambda q=queue, e=entries: observer.dequeue(host.number(q), e))  # type: ignore[misc]
    return observer


def commit(node: MemoryNode, observer: Observer, label: str = "commit") -> None:
    node.report(lambda: observer.commit(node.host.note(label)))


T = (("q", "t"), ("r", "t"))
"""The messages of the transaction that most schedules are about."""


def begin_t(node: MemoryNode) -> Observer:
    """That transaction, open."""
    return begin(node, {"q": ["t"], "r": ["t"]})


def publish(node: MemoryNode, queue: str, body: str) -> None:
    node.report(lambda: node.host.publish(queue, body))


def answered(cluster: MemoryCluster, node: MemoryNode, label: str = "commit") -> None:
    """Turn until this request was answered ok."""
    cluster.run(lambda: node.host.answer(label) is not None)
    assert node.host.answer(label) == "ok"


def backups_of(cluster: MemoryCluster) -> list[MemoryNode]:
    primary = cluster.primary
    return [node for name, node in sorted(cluster.nodes.items()) if node is not primary]


def decided(node: MemoryNode) -> bool:
    """Whether a decision to commit stands in this node's log and is not applied yet."""
    return any(buffer.decided is not None for buffer in node.core.replica.buffers.values())


def prepared(node: MemoryNode) -> bool:
    """Whether a transaction is prepared here."""
    return any(buffer.prepared is not None for buffer in node.core.replica.buffers.values())


def carrying(kind: type[Event], target: str) -> Callable[[str, str, Any], bool]:
    """A loss: the first frame to ``target`` that carries such an event never arrives."""
    lost: list[Any] = []

    def lose(source: str, to: str, message: Any) -> bool:
        if to != target or lost or not isinstance(message, Entries):
            return False
        if any(isinstance(event, kind) for event in decode_frame(message.frame)[0].events()):
            lost.append(message)
            return True
        return False

    return lose


def survivors_agree(cluster: MemoryCluster) -> None:
    """Every node becomes ready and holds the same, and no transaction is left."""
    all_agree(cluster)
    assert all(not node.core.replica.buffers for node in cluster.nodes.values())


def all_agree(cluster: MemoryCluster) -> None:
    """Every node becomes ready and holds the same, and no copy had to begin anew since something was wrong in it."""
    cluster.settled()
    for node in cluster.nodes.values():
        assert not any("the snapshot does not match" in line for line in node.lines), node.lines
    cluster.pause(0.3)
    cluster.check_agreement()
    applied = {node.core.replica.applied for node in cluster.nodes.values()}
    assert len(applied) == 1, applied


def whole_or_absent(cluster: MemoryCluster, *messages: tuple[str, str]) -> bool:
    """P1: whether all of these (queue, body) are visible at the primary; fails if only some are."""
    host = cluster.primary.host
    found = [body in host.bodies(queue) for queue, body in messages]
    assert all(found) or not any(found), f"half of a transaction: {found}"
    return all(found)
