"""Named schedules of PROTOCOL about joiners: guards, trackers, snapshots; they run under the cluster's oracles."""

from __future__ import annotations

import pytest

from ha.messages.copying import QueueContent, QueueSnapshot, SnapshotEnd
from ha.messages.stream import Ack
from ha.messages.wire import decode
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import (
    T,
    answered,
    backups_of,
    begin,
    begin_t,
    commit,
    decided,
    declared,
    prepared,
    publish,
    survivors_agree,
    whole_or_absent,
)
from txobserver.configuration import delete_queue_step


def without_one(messages: int = 0) -> tuple[MemoryCluster, MemoryNode, MemoryNode, str]:
    """A primary, a ready backup, and the name of a third node that is down and out of the ready set."""
    cluster = declared("q", "r")
    primary, other, away = cluster.primary, *backups_of(cluster)
    for number in range(messages):
        for queue in ("q", "r"):
            publish(primary, queue, f"{queue}{number}")
    if messages:
        answered(cluster, primary, f"publish r{messages - 1}")
    cluster.kill(away.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    return cluster, primary, other, away.name


def session_of(primary: MemoryNode, name: str):  # type: ignore[no-untyped-def]
    assert primary.core.leading is not None
    return primary.core.leading.backups.sessions[name]


def stop_before(cluster: MemoryCluster, primary: MemoryNode, name: str, kind: type) -> None:
    """Start a node with a new store, and let its catch-up run until the first such message is on its way to it."""
    cluster.start(name, wipe=True)
    cluster.run(lambda: any(t == name and isinstance(decode(data), kind) for _, t, data in cluster.wire))
    cluster.held.add((primary.name, name))


def force_resync(node: MemoryNode) -> None:
    """The primary's log no longer reaches back to the beginning."""
    node.core.log_first = node.core.replica.tail.sequence + 1


def test_joiner_subscribes_snapshot_deletes() -> None:
    """T enters a queue whose snapshot is on its way and one that is not walked yet; neither hides or doubles it."""
    cluster, primary, _, name = without_one(messages=3)
    force_resync(primary)
    stop_before(cluster, primary, name, QueueSnapshot)
    commit(primary, begin(primary, {"q": ["t"], "r": ["t"]}, {"q": ["q0"], "r": ["r0"]}))
    answered(cluster, primary)
    cluster.held.clear()
    survivors_agree(cluster)
    for other in [n for n in cluster.nodes if n != name]:
        cluster.kill(other)
    cluster.run(lambda: cluster.nodes[name].state == "active")
    assert cluster.primary.host.bodies("q") == ["q1", "q2", "t"]
    assert cluster.primary.host.bodies("r") == ["r1", "r2", "t"]


def test_a_message_goes_while_its_content_is_on_its_way() -> None:
    cluster, primary, _, name = without_one(messages=3)
    force_resync(primary)
    stop_before(cluster, primary, name, QueueContent)
    commit(primary, begin(primary, {"r": ["t"]}, {"q": ["q1"]}))
    answered(cluster, primary)
    cluster.held.clear()
    survivors_agree(cluster)


def test_tracker_never_clears() -> None:
    """T is prepared when the joiner connects and reaches it through the snapshot: the tracker must clear too."""
    cluster, primary, other, name = without_one(messages=2)
    cluster.held.add((other.name, primary.name))
    commit(primary, begin_t(primary))
    cluster.run(lambda: prepared(primary))
    force_resync(primary)
    joiner = cluster.start(name, wipe=True)
    cluster.run(lambda: joiner.core.replica.resyncing)
    assert len(session_of(primary, name).trackers) == 2, "one for each queue of T"
    cluster.held.clear()
    answered(cluster, primary)
    survivors_agree(cluster)
    assert session_of(primary, name).trackers.clear
    assert whole_or_absent(cluster, *T)


def test_tracker_cleared_on_send() -> None:
    """The decision is sent, and even on the joiner's disk; only its durable acknowledgement clears the tracker."""
    cluster, primary, _, name = without_one()
    publish(primary, "q", "what the joiner lacks")
    answered(cluster, primary, "publish what the joiner lacks")
    joiner = cluster.start(name)
    had = joiner.disk.durable
    cluster.lose = lambda source, _, message: source == name and isinstance(message, Ack) and message.sequence > had
    cluster.run(lambda: name in primary.core.leading.backups.sessions)  # type: ignore[union-attr]
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    cluster.run(lambda: joiner.disk.durable == primary.disk.durable)
    assert len(session_of(primary, name).trackers) == 2, "sent, and durable there, is not acknowledged"
    assert joiner.member not in cluster.coordination.record.ready  # type: ignore[union-attr]
    cluster.lose = lambda source, target, message: False
    publish(primary, "q", "next")
    survivors_agree(cluster)


def test_tracker_of_a_deleted_queue() -> None:
    cluster, primary, _, name = without_one()
    publish(primary, "q", "what the joiner lacks")
    answered(cluster, primary, "publish what the joiner lacks")
    cluster.lose = lambda source, target, message: source == name and isinstance(message, Ack)
    cluster.start(name)
    cluster.run(lambda: name in primary.core.leading.backups.sessions)  # type: ignore[union-attr]
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    ledger = primary.host.ledger
    assert ledger is not None
    primary.report(lambda: ledger.configure(delete_queue_step("r"), primary.host.note("delete")))
    answered(cluster, primary, "delete")
    assert len(session_of(primary, name).trackers) == 1
    cluster.lose = lambda source, target, message: False
    publish(primary, "q", "next")
    survivors_agree(cluster)


def test_ended_before_primary_applied() -> None:
    """T is decided and not applied at the primary when the joiner connects: it is closed and has not ended."""
    cluster, primary, other, name = without_one()
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    cluster.held |= {(other.name, primary.name), (name, primary.name)}
    joiner = cluster.start(name)
    cluster.held.discard((name, primary.name))
    cluster.run(lambda: name in primary.core.leading.backups.sessions)  # type: ignore[union-attr]
    assert len(session_of(primary, name).trackers) == 2
    cluster.pause(0.3)
    assert primary.host.answer("commit") is None
    cluster.held.clear()
    answered(cluster, primary)
    survivors_agree(cluster)
    assert joiner.core.state == "ready"


def test_tracker_for_what_snapshot_already_has() -> None:
    """T ended before the joiner connects: no tracker is set for it, and the snapshot brings it."""
    cluster, primary, _, name = without_one()
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    force_resync(primary)
    cluster.start(name, wipe=True)
    cluster.run(lambda: name in primary.core.leading.backups.sessions)  # type: ignore[union-attr]
    assert session_of(primary, name).trackers.clear
    survivors_agree(cluster)


def test_joiner_lacks_message_to_dequeue() -> None:
    """T dequeues a message that the joiner has not got yet: it has no vote, so no client is rolled back."""
    cluster, primary, _, name = without_one(messages=3)
    force_resync(primary)
    stop_before(cluster, primary, name, QueueContent)
    commit(primary, begin(primary, {"r": ["out"]}, {"q": ["q2"]}))
    answered(cluster, primary)
    assert name not in primary.core.leading.backups.attachments.participants()  # type: ignore[union-attr]
    cluster.held.clear()
    survivors_agree(cluster)
    assert primary.host.bodies("q") == ["q0", "q1"]


def test_prepared_branch_blocks_joiner() -> None:
    """T stays prepared for long; the joiner passes its guard with the prepare on disk and becomes ready meanwhile."""
    cluster, primary, other, name = without_one()
    cluster.held.add((other.name, primary.name))
    commit(primary, begin_t(primary))
    cluster.run(lambda: prepared(primary))
    joiner = cluster.start(name)
    cluster.run(lambda: joiner.state == "ready", seconds=cluster.settings.prepare_timeout - 1)
    assert primary.host.answer("commit") is None
    cluster.held.clear()
    answered(cluster, primary)
    survivors_agree(cluster)


def test_joiner_between_two_transactions() -> None:
    cluster, primary, _, name = without_one()
    commit(primary, begin_t(primary), "first")
    answered(cluster, primary, "first")
    cluster.start(name)
    cluster.turn()
    commit(primary, begin(primary, {"q": ["u"], "r": ["u"]}), "second")
    answered(cluster, primary, "second")
    survivors_agree(cluster)


@pytest.mark.parametrize("wipe", [False, True])
def test_leave_and_rejoin_inside_a_transaction(wipe: bool) -> None:
    """A backup has the first events of T, goes, comes back before the commit: it ends with all of T or is not ready."""
    cluster = declared("q", "r")
    primary, _, other = cluster.primary, *backups_of(cluster)
    observer = begin(primary, {"q": ["t"]})
    cluster.pause(0.05)
    cluster.kill(other.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    cluster.start(other.name, wipe=wipe)
    number = primary.host.number("r")
    primary.report(lambda: observer.enqueue([number], text("t")))
    cluster.pause(0.02)
    commit(primary, observer)
    answered(cluster, primary)
    survivors_agree(cluster)
    cluster.kill(primary.name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    assert whole_or_absent(cluster, *T)


def test_skip_set_after_an_abort() -> None:
    """T is rolled back while a joiner copies the queues; the same messages come again: nothing hides them."""
    cluster, primary, _, name = without_one(messages=2)
    force_resync(primary)
    observer = begin_t(primary)
    stop_before(cluster, primary, name, QueueSnapshot)
    primary.report(observer.rollback)
    cluster.pause(0.1)
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    cluster.held.clear()
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T)


@pytest.mark.parametrize("moment", [QueueSnapshot, QueueContent, SnapshotEnd])
@pytest.mark.parametrize("who", ["joiner", "primary"])
def test_somebody_dies_in_the_middle_of_a_resync(moment: type, who: str) -> None:
    cluster, primary, _, name = without_one(messages=4)
    force_resync(primary)
    stop_before(cluster, primary, name, moment)
    cluster.kill(name if who == "joiner" else primary.name)
    cluster.held.clear()
    cluster.start(name if who == "joiner" else primary.name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    commit(cluster.primary, begin_t(cluster.primary))
    answered(cluster, cluster.primary)
    survivors_agree(cluster)
    assert cluster.primary.host.bodies("q") == ["q0", "q1", "q2", "q3", "t"]


def test_a_half_resynchronised_store_is_never_promoted() -> None:
    cluster, primary, other, name = without_one(messages=4)
    force_resync(primary)
    stop_before(cluster, primary, name, SnapshotEnd)
    cluster.kill(primary.name)
    cluster.kill(other.name)
    cluster.kill(name)
    joiner = cluster.start(name)
    cluster.pause(6)
    assert joiner.core.replica.resyncing and joiner.state == "joining"
    cluster.start(other.name)
    cluster.held.clear()
    survivors_agree(cluster)


def test_a_queue_that_comes_and_one_that_goes_during_a_resync() -> None:
    cluster, primary, _, name = without_one(messages=4)
    force_resync(primary)
    stop_before(cluster, primary, name, QueueSnapshot)
    primary.report(lambda: primary.host.declare("new"))
    ledger = primary.host.ledger
    assert ledger is not None
    primary.report(lambda: ledger.configure(delete_queue_step("r"), primary.host.note("delete")))
    answered(cluster, primary, "declare new")
    answered(cluster, primary, "delete")
    publish(primary, "new", "n")
    answered(cluster, primary, "publish n")
    cluster.held.clear()
    survivors_agree(cluster)
    for other in [n for n in cluster.nodes if n != name]:
        cluster.kill(other)
    cluster.run(lambda: cluster.nodes[name].state == "active")
    assert set(cluster.primary.core.replica.contents.configuration.queues) == {"q", "new"}
    assert cluster.primary.host.bodies("new") == ["n"]


def test_a_queue_is_purged_during_a_resync() -> None:
    cluster, primary, _, name = without_one(messages=4)
    force_resync(primary)
    stop_before(cluster, primary, name, QueueContent)
    ledger, number = primary.host.ledger, primary.host.number("q")
    assert ledger is not None
    spared = [primary.host.entry("q", "q2")]
    primary.report(lambda: ledger.purge(number, (1 << 63) - 1, spared, primary.host.note("purge")))
    answered(cluster, primary, "purge")
    publish(primary, "q", "after")
    answered(cluster, primary, "publish after")
    cluster.held.clear()
    survivors_agree(cluster)
    for other in [n for n in cluster.nodes if n != name]:
        cluster.kill(other)
    cluster.run(lambda: cluster.nodes[name].state == "active")
    assert cluster.primary.host.bodies("q") == ["q2", "after"]
