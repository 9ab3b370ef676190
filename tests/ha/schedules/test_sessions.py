"""A node's process ends and another one begins: what the former one sent, and was sent, may arrive much later."""

from __future__ import annotations

from typing import Any

import pytest

from ha.messages.attaching import AttachmentRefused, Follow, Join
from ha.messages.copying import Missing, ResyncBegin, SnapshotEnd
from ha.messages.stream import Ack, Entries
from ha.messages.wire import decode
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import answered, backups_of, declared, publish, survivors_agree


def started(cluster: MemoryCluster, name: str, copied: bool) -> MemoryNode:
    """Another process of this node, which is attached or in the middle of a copy; its disk is slow from then on."""
    if copied:
        cluster.disks[name].base.meta.resyncing = True
        cluster.disks[name].frames.clear()
    node = cluster.start(name)
    cluster.run(lambda: node.core.following is not None and node.core.following.backup.attached)
    return node


@pytest.mark.parametrize("copied", [False, True])
def test_messages_of_a_former_process(copied: bool) -> None:
    """P2, P11: acknowledged is what this process has made durable, and a copy goes by what this one lacks."""
    cluster = declared("q")
    primary, name = cluster.primary, backups_of(cluster)[0].name
    publish(primary, "q", "one")
    answered(cluster, primary, "publish one")
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    late: list[tuple[str, str, Any]] = []

    def overhear(source: str, target: str, message: Any) -> bool:
        if name in (source, target):
            late.append((source, target, message))
        return False

    cluster.lose = overhear
    former = started(cluster, name, copied)
    assert former.core.following
    number = former.core.following.backup.session
    publish(primary, "q", "between")
    cluster.run(lambda: any(isinstance(m, SnapshotEnd if copied else Entries) for _, _, m in late))
    cluster.pause(0.1)
    cluster.kill(name)
    cluster.lose = lambda source, target, message: False
    of_it = [each for each in late if getattr(each[2], "session", None) == number]
    mine = [each for each in of_it if not isinstance(each[2], Join)]  # one that comes late attaches, and is given up
    kinds = {type(message) for _, _, message in mine}
    assert kinds >= ({Ack, ResyncBegin, SnapshotEnd, Missing} if copied else {Ack, Entries, Follow}), kinds

    node = started(cluster, name, copied)
    node.disk_held = True
    backup, backups = node.core.following.backup, primary.core.leading.backups
    assert backup and backups and backup.session != number, "no number is ever given twice"
    publish(primary, "q", "two")
    cluster.pause(0.1)
    session, before = backups.sessions[name], node.core.replica.tail
    acknowledged, resync = session.acknowledged, session.resync
    for source, target, message in mine:
        to = cluster.nodes[target]
        to.report(lambda n=to, s=source, m=message: n.core.on_message(s, m))  # type: ignore[misc]
    assert backups.sessions[name] is session and session.acknowledged == acknowledged and session.resync is resync
    assert backup.attached and node.core.replica.tail == before
    assert primary.host.answer("publish two") in (None, "ok")
    refused = [m for _, _, m in cluster.wire for m in [decode(m)] if isinstance(m, AttachmentRefused)]
    assert all(each.session == number for each in refused)
    node.disk_held = False
    survivors_agree(cluster)
    assert primary.host.bodies("q") == ["one", "between", "two"]
