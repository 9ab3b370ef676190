"""Named schedules about the coordination record and about stores that must not stand: what once lost acknowledged data.

The store has two writers, for its log and for its checkpoints, of different speed: here checkpoints can be held back.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ha.apply.replica import Replica
from ha.effects import WriteCheckpoint
from ha.membership.record import first_record
from ha.messages.election import Probe, ProbeReply
from ha.messages.stream import Entries
from ha.messages.wire import decode
from tests.ha.schedules.test_joiner import force_resync
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_disk import CLUSTER_ID
from tests.support.steps import answered, backups_of, declared, publish, survivors_agree
from txobserver.access import Access
from txobserver.calls import KeptCalls
from txobserver.events import GenerationStart
from txobserver.ids import Member, Position
from txobserver.ports.store import MemoryBase, Meta


def ready(cluster: MemoryCluster) -> list[str]:
    assert cluster.coordination.record is not None
    return [member.node for member in cluster.coordination.record.ready]


def published(cluster: MemoryCluster, node: MemoryNode, *bodies: str) -> None:
    for body in bodies:
        publish(node, "q", body)
        answered(cluster, node, f"publish {body}")


def promote(node: MemoryNode, accept_data_loss: bool = True, version: int = 0) -> str | None:
    said: list[str | None] = []
    node.report(lambda: said.append(node.core.promote(accept_data_loss, version)))
    return said[0]


def alone(cluster: MemoryCluster, name: str) -> None:
    """Kill every node but this one, which its primary has taken out of the ready set."""
    for other in [each for each in cluster.nodes if each != name]:
        cluster.kill(other)


def copied_and_not_saved(how: str) -> tuple[MemoryCluster, MemoryNode, MemoryNode]:
    """A primary, and a joiner whose snapshot is whole in its memory and whose checkpoint of it is held back."""
    cluster = declared("q", size=2)
    primary, (b,) = cluster.primary, backups_of(cluster)
    published(cluster, primary, *(f"m{n}" for n in range(20)))
    cluster.kill(b.name)
    cluster.run(lambda: ready(cluster) == [primary.name])
    force_resync(primary)
    b = cluster.start(b.name, wipe=True)
    b.checkpoints_held = lambda write: not write.checkpoint.meta.resyncing
    cluster.run(lambda: any(isinstance(w, WriteCheckpoint) for w in b.writes) and not b.core.replica.resyncing)
    if how == "reset":
        for one, other in ((primary, b), (b, primary)):
            one.report(lambda one=one, other=other: one.core.on_link(other.name, False))  # type: ignore[misc]
            one.report(lambda one=one, other=other: one.core.on_link(other.name, True))  # type: ignore[misc]
    return cluster, primary, b


@pytest.mark.parametrize("how", ["reset", "slow"])
def test_ready_before_the_snapshot_is_durable(how: str) -> None:
    """The link is reset, or the checkpoint is slower than every timeout: a joiner is ready when its disk holds it."""
    cluster, primary, b = copied_and_not_saved(how)
    for n in range(200):
        publish(primary, "q", f"late{n}")
        cluster.pause(0.05)
        assert b.name not in ready(cluster) and b.disk.base.meta.resyncing
    b.checkpoints_held = lambda write: False
    cluster.run(lambda: b.name in ready(cluster))
    assert not b.disk.base.meta.resyncing
    published(cluster, primary, "told")
    cluster.kill(primary.name)
    cluster.kill(b.name)
    b = cluster.start(b.name)
    cluster.run(lambda: b.state == "active")
    assert len(b.host.bodies("q")) == 221 and "told" in b.host.bodies("q")


def test_a_power_cut_between_snapshot_and_checkpoint_loses_no_primary() -> None:
    """Both die while only the joiner's memory is whole; the joiner starts first, and waits for who has the data."""
    cluster, primary, b = copied_and_not_saved("reset")
    cluster.pause(5)
    cluster.kill(primary.name)
    cluster.kill(b.name)
    b = cluster.start(b.name)
    cluster.pause(10)
    assert b.state == "joining" and b.core.replica.resyncing
    cluster.start(primary.name)
    survivors_agree(cluster)
    assert len(cluster.primary.host.bodies("q")) == 20


def test_a_store_that_is_being_overwritten_never_stands_whatever_the_record_says() -> None:
    cluster, primary, b = copied_and_not_saved("slow")
    cluster.kill(primary.name)
    cluster.kill(b.name)
    record = cluster.coordination.record
    assert record is not None
    cluster.coordination.record = replace(record, ready=(*record.ready, b.member), released=True)
    b = cluster.start(b.name)
    cluster.pause(10)
    assert b.state == "joining"
    assert "no whole state" in (promote(b) or "")
    # nor does it keep a whole member from standing: what it says of its log does not count
    a = cluster.start(primary.name)
    cluster.run(lambda: a.state == "active")
    survivors_agree(cluster)


def test_a_checkpoint_of_before_the_snapshot_does_not_make_the_store_whole() -> None:
    """It is under way when the copy begins, and done when the snapshot is whole in memory and not on the disk."""
    replica = Replica(MemoryBase(), Meta(), {})
    replica.append(1, GenerationStart(1, "a", []))
    replica.durable = 1
    replica.apply(1)
    replica.checkpoint()
    replica.begin_resync()
    assert not replica.whole
    outcomes = replica.contents.table.outcomes.meta
    replica.end_resync(
        Position(1, 5), [Position(1, 1)], replica.contents.configuration, {}, outcomes, [], KeptCalls(), Access()
    )
    replica.checkpoint_written()
    assert not replica.whole
    replica.checkpoint()
    replica.checkpoint_written()
    assert replica.whole


def test_a_store_that_is_being_overwritten_does_not_say_how_far_its_log_goes() -> None:
    """Else the others would wait for it to stand, and it never does."""
    cluster, primary, b = copied_and_not_saved("reset")
    asked = Probe(b.core.generation, 3)
    cluster.wire.clear()
    b.report(lambda: b.core.on_message(primary.name, asked))
    replies = [decode(data) for source, _, data in cluster.wire if source == b.name]
    assert [m.tail for m in replies if isinstance(m, ProbeReply)] == [Position(0, 0)]


def behind(cluster: MemoryCluster) -> MemoryNode:
    """b comes back to a, b, c and has not caught up, as nothing of the stream gets to it; a is killed."""
    a = cluster.primary
    b = min(backups_of(cluster), key=lambda node: node.name)
    cluster.kill(b.name)
    cluster.run(lambda: b.name not in ready(cluster))
    published(cluster, a, "m0")
    cluster.lose = lambda source, target, message: target == b.name and isinstance(message, Entries)
    b = cluster.start(b.name)
    version = cluster.coordination.record.version if cluster.coordination.record else 0
    cluster.run(lambda: b.core.record is not None and b.core.record.version > version)
    cluster.kill(a.name)
    return b


def test_accept_data_loss_races_a_new_primary() -> None:
    """The operator's force is accepted in the moment when c is elected: it was granted for the record before."""
    cluster = declared("q", size=3)
    b = behind(cluster)
    cluster.run(lambda: promote(b) is None)
    cluster.lose = lambda source, target, message: False
    survivors_agree(cluster)
    record = cluster.coordination.record
    assert record is not None and record.generation == 2 and record.loss_accepted == 0
    assert cluster.primary.name == "c" and cluster.primary.host.bodies("q") == ["m0"]
    assert any("nothing is forced" in line for line in b.lines)


def test_accept_data_loss_is_granted_for_the_version_that_the_operator_saw() -> None:
    cluster = declared("q", size=3)
    b = behind(cluster)
    cluster.kill("c")
    record = cluster.coordination.record
    assert record is not None
    assert f"at version {record.version} and not at 1" in (promote(b, version=1) or "")
    cluster.run(lambda: promote(b, version=record.version) is None)
    cluster.run(lambda: b.state == "active")


def test_an_accepted_loss_stands_in_the_record_and_lets_others_be_overwritten() -> None:
    """a holds what b has not; an operator accepts that it is lost; a joins b, and the word stays in the record."""
    cluster = declared("q", size=3)
    b = behind(cluster)
    cluster.run(lambda: cluster.nodes["c"].state == "active")
    cluster.pause(6)  # a checkpoint: c knows that m0 has passed the commit point
    cluster.kill("c")
    cluster.run(lambda: promote(b) is None)
    cluster.run(lambda: b.state == "active")
    record = cluster.coordination.record
    assert record is not None and record.loss_accepted == record.generation == 3 and ready(cluster) == ["b"]
    cluster.lose = lambda source, target, message: False
    cluster.start("a")
    cluster.start("c")
    survivors_agree(cluster)
    published(cluster, b, "after")
    assert b.host.bodies("q") == ["after"]
    cluster.kill("b")
    cluster.run(lambda: cluster.coordination.record is not None and cluster.coordination.record.generation == 4)
    assert cluster.coordination.record.loss_accepted == 3


def two(messages: int = 10) -> tuple[MemoryCluster, MemoryNode, MemoryNode]:
    cluster = declared("q", size=2)
    a, (b,) = cluster.primary, backups_of(cluster)
    published(cluster, a, *(f"old{n}" for n in range(messages)))
    return cluster, a, b


def test_older_record_restored() -> None:
    """A record of generation 1 takes the place of that of generation 3: stores that have seen more refuse it."""
    cluster, _, _ = two()
    old = cluster.coordination.record
    for _ in range(2):
        name = cluster.primary.name
        cluster.kill(name)
        cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
        cluster.start(name)
        cluster.settled()
    published(cluster, cluster.primary, "g3")
    for name in list(cluster.nodes):
        cluster.kill(name)
    cluster.coordination.record = old
    for name in list(cluster.disks):
        cluster.start(name)
    cluster.pause(10)
    for node in cluster.nodes.values():
        assert node.state == "standalone" and "has seen generation 3" in (node.core.waits_for_operator or "")
        assert "has seen generation 3" in (promote(node) or "")
        assert sum("has seen generation 3" in line for line in node.lines) == 1, "said once"
    assert cluster.coordination.record is old


def test_older_record_of_the_same_generation_restored() -> None:
    """b is removed, a acknowledges alone, both die, an older copy lists b, b starts first: a is not overwritten."""
    cluster, a, b = two()
    old = cluster.coordination.record
    cluster.kill(b.name)
    cluster.run(lambda: ready(cluster) == ["a"])
    published(cluster, a, "alone")
    cluster.pause(6)  # a checkpoint: what a knows to have passed the commit point
    cluster.kill("a")
    cluster.coordination.record = old
    b = cluster.start("b")
    cluster.run(lambda: b.state == "active")
    published(cluster, b, "other")
    a = cluster.start("a")
    cluster.pause(10)
    assert a.state == "joining" and "discard this store" in (a.core.waits_for_operator or "")
    assert sum("had passed the commit point" in line for line in a.lines) == 1, "it is said once, and it waits"
    assert "alone" in [entry.message.body.decode() for entry in a.disk.base.queues[1].values()]


def test_the_record_goes_back_while_the_nodes_run() -> None:
    """An operator puts a copy in the record's place under a running cluster: no node goes by it."""
    cluster, a, _ = two()
    old = cluster.coordination.record
    cluster.kill("b")
    cluster.run(lambda: ready(cluster) == ["a"])
    published(cluster, a, "alone")
    cluster.coordination.record = old
    cluster.start("b")
    cluster.run(lambda: a.state == "joining")
    assert any("went back from version" in line for line in a.lines)
    cluster.pause(0.5)
    assert a.core.waits_for_operator is not None


def test_empty_node_founds_anew() -> None:
    """The record is lost, an operator founds a cluster of the same name on b's new store: a does not follow it."""
    cluster, _, _ = two()
    for name in ("a", "b"):
        cluster.kill(name)
    cluster.disks["b"].incarnation = "b2"
    cluster.coordination.record = first_record("test", "another", Member("b", "b2'"))
    b: Any = cluster.start("b", wipe=True)
    assert b.core.record is None
    cluster.disks["b"].cluster_id = "another"
    cluster.kill("b")
    b = cluster.start("b")
    cluster.run(lambda: b.state == "active")
    a = cluster.start("a")
    cluster.pause(5)
    assert a.state == "standalone" and "another cluster that is also called test" in (a.core.waits_for_operator or "")
    assert a.core.replica.tail.sequence > 10


def test_a_node_whose_store_has_seen_a_higher_generation_waits() -> None:
    """c was primary of a generation that no node could reach when the loss was accepted; it comes back later."""
    cluster = declared("q", size=3)
    for _ in range(2):
        name = cluster.primary.name
        cluster.kill(name)
        cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
        cluster.start(name)
        cluster.settled()
    published(cluster, cluster.primary, "g3")
    for name in ("a", "b", "c"):
        cluster.kill(name)
    current = cluster.coordination.record
    assert current is not None
    cluster.coordination.record = replace(current, generation=2, loss_accepted=2)
    c = cluster.start("c")
    cluster.pause(5)
    assert c.state == "standalone" and "has seen generation 3" in (c.core.waits_for_operator or "")
    assert current.cluster_id == CLUSTER_ID


def test_a_member_is_taken_out_under_a_living_primary() -> None:
    """``txha discard`` removes a stopped backup from the record: its primary goes on, the node comes back as new."""
    cluster = declared("q", size=3)
    primary, (b, c) = cluster.primary, backups_of(cluster)
    published(cluster, primary, "before")
    record, gone = cluster.coordination.record, b.name
    cluster.kill(gone)
    assert record is not None and cluster.coordination.record is not None
    generation, current = record.generation, cluster.coordination.record
    left = tuple(member for member in current.ready if member.node != gone)
    cluster.coordination.compare_and_set(current.version, replace(current, ready=left))
    published(cluster, primary, "after")
    assert set(ready(cluster)) == {primary.name, c.name}
    cluster.pause(10)
    assert primary.state == "active" and primary.core.generation == generation, "it is the same lease"
    cluster.start(gone, wipe=True)
    cluster.settled()
    assert set(ready(cluster)) == {primary.name, gone, c.name}
    survivors_agree(cluster)
