"""States of nodes in the middle of their work, and what is found when one is broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from ha.invariants import check_deep
from tests.support.branch_steps import branch_prepared, work_on
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import backups_of, begin_t, commit, declared, publish
from txobserver.invariants import InvariantBroken, checking
from txobserver.xid import Xid

Y = Xid(1, b"another", b"")


def busy() -> MemoryCluster:
    """Messages in queues, a branch in doubt, another one open, and a transaction whose votes have not all come."""
    cluster = declared("q", "r")
    primary = cluster.primary
    for body in "abc":
        publish(primary, "q", body)
    cluster.pause(0.1)
    branch_prepared(cluster, takes=(("q", "a"),))
    work_on(primary, Y)
    cluster.pause(0.1)
    for node in backups_of(cluster):
        node.disk_held = True
    observer = begin_t(primary)
    commit(primary, observer)
    cluster.turn()
    cluster.turn()
    return cluster


def copying() -> MemoryCluster:
    """A joiner with a new disk in the middle of its copy."""
    cluster = declared("q", "r", portion_bytes=500)
    for number in range(60):
        publish(cluster.primary, "q", f"{number:0100}")
    cluster.pause(0.1)
    joiner = backups_of(cluster)[0]
    cluster.kill(joiner.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    cluster.primary.core.log_first = cluster.primary.core.replica.tail.sequence  # as if the rest had been reclaimed
    again = cluster.start(joiner.name, wipe=True)
    cluster.run(lambda: again.core.following is not None and again.core.following.backup._replicator is not None)
    cluster.run(lambda: session_of(cluster, again.name).resync._under_way.taken > 2)
    return cluster


def session_of(cluster: MemoryCluster, name: str) -> Any:
    return cluster.primary.core.leading.backups.sessions[name]  # type: ignore[union-attr]


def joiner_of(cluster: MemoryCluster) -> MemoryNode:
    return next(node for node in cluster.nodes.values() if node.core.replica.resyncing)


def broken(node: MemoryNode) -> InvariantBroken:
    """What a look through everything finds now."""
    with pytest.raises(InvariantBroken) as found:
        node.core.take_effects()
        with checking("deep"):
            check_deep(node.core, node.core.role)
    return found.value


def put(target: Any, name: str, value: Any) -> None:
    """Set what no part of the product would."""
    setattr(target, name, value)


def put_all(target: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(target, name, value)


def keeper_of(core: Any) -> Any:
    return core.leading.keeper


def writer_of(core: Any) -> Any:
    return core.leading.primary.writer


def point_of(core: Any) -> Any:
    return core.leading.primary.point


def additions_of(core: Any) -> Any:
    return core.leading.primary._additions


def decisions_of(core: Any) -> Any:
    return core.leading.primary.decisions


def table_of(core: Any) -> Any:
    return core.replica.contents.table


def first_session(core: Any) -> Any:
    return next(iter(core.leading.backups.sessions.values()))


def prepared_tx(core: Any) -> Any:
    return next(b for b in core.replica.buffers.values() if b.state == "prepared" and not b.stays)


def open_tx(core: Any) -> Any:
    return next(b for b in core.replica.buffers.values() if b.state == "open")


def in_doubt(core: Any) -> Any:
    return next(iter(core.replica.contents.table.prepared.values()))


def tally_of(core: Any) -> Any:
    return core.replica.contents.queues._tallies[1]


def backup_of(core: Any) -> Any:
    return core.following.backup


def resync_of(cluster: MemoryCluster) -> Any:
    return session_of(cluster, joiner_of(cluster).name).resync


def replicator_of(core: Any) -> Any:
    return core.following.backup._replicator


def record_of(core: Any) -> Any:
    return core.leading.keeper.record
