"""``damage_found_while_serving``: a store that turns out to be damaged while it is read ends its node, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from ha.messages.copying import QueueSnapshot
from ha.messages.wire import decode
from tests.ha.schedules.test_joiner import force_resync, without_one
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import begin, commit
from txobserver.ports.store import StoreDamaged

SENTENCE = "a checksum in the queue state does not match"


def damage(node: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry of the node's queue state fails its checksum from now on."""

    def fail(*_: Any) -> Any:
        raise StoreDamaged(SENTENCE)

    for call in ("get", "page", "ids", "holds", "read"):
        monkeypatch.setattr(node.disk.base, call, fail)


def with_checkpoints() -> tuple[MemoryCluster, MemoryNode, MemoryNode, str]:
    """A primary, a ready backup, and a third node's name; three messages in each queue's state on disk."""
    cluster, primary, backup, name = without_one(messages=3)
    cluster.run(lambda: all(len(node.disk.base.queues.get(1, {})) == 3 for node in (primary, backup)))
    return cluster, primary, backup, name


def test_a_primary_that_finds_it_while_it_is_copied_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, primary, backup, name = with_checkpoints()
    force_resync(primary)
    cluster.start(name, wipe=True)
    cluster.run(lambda: any(t == name and isinstance(decode(data), QueueSnapshot) for _, t, data in cluster.wire))
    damage(primary, monkeypatch)
    cluster.run(lambda: primary.stopped is not None)
    assert primary.stopped == SENTENCE
    cluster.run(lambda: cluster.coordination.record.released)
    assert primary.member not in cluster.coordination.record.ready, "another holds everything: it leaves the ready set"
    cluster.kill(primary.name)
    cluster.run(lambda: backup.state == "active")
    cluster.settled()
    assert backup.host.bodies("q") == ["q0", "q1", "q2"] and cluster.nodes[name].state == "ready"


def test_a_backup_that_finds_it_leaves_and_the_primary_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, primary, backup, _ = with_checkpoints()
    damage(backup, monkeypatch)
    commit(primary, begin(primary, {"q": ["t"]}, {"q": ["q0"]}))
    cluster.run(lambda: backup.stopped is not None)
    assert backup.stopped == SENTENCE
    cluster.run(lambda: primary.host.answer("commit") is not None)
    cluster.run(lambda: [m.node for m in cluster.coordination.record.ready] == [primary.name])
    assert primary.state == "active" and primary.host.bodies("q") == ["q1", "q2", "t"]


def test_a_primary_that_finds_it_as_it_applies_a_commit_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is on both disks: the client learns nothing from this node, and the next primary shows it."""
    cluster, primary, backup, _ = with_checkpoints()
    damage(primary, monkeypatch)
    commit(primary, begin(primary, {"q": ["t"]}, {"q": ["q0"]}))
    cluster.run(lambda: primary.stopped is not None)
    cluster.run(lambda: cluster.coordination.record.released)
    assert primary.stopped == SENTENCE and primary.host.answer("commit") is None
    cluster.kill(primary.name)
    cluster.run(lambda: backup.state == "active")
    assert backup.host.bodies("q") == ["q1", "q2", "t"]
