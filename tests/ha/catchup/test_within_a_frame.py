"""Logs that end within a frame of another one: a store made from an archive does, whose batches are cut by events."""

from __future__ import annotations

import pytest

from ha.apply.replica import Replica
from tests.ha.schedules.test_record import promote, published, ready
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_disk import MemoryDisk
from tests.support.steps import declared, survivors_agree
from txobserver.frames import Frame, encode_frame

BODIES = [f"m{number}" for number in range(4)]


def publish_as_one(cluster: MemoryCluster) -> Frame:
    """Events of one frame, acknowledged; returns it."""
    primary = cluster.primary
    last = primary.core.replica.tail.sequence
    primary.report(lambda: [primary.host.publish("q", body) for body in BODIES])  # type: ignore[func-returns-value]
    cluster.run(lambda: all(primary.host.answer(f"publish {body}") == "ok" for body in BODIES))
    (found,) = [each for each in primary.disk.frames if each.first == last + 1]
    assert found.count == len(BODIES)
    return found


def made_from_events(cluster: MemoryCluster, name: str, frames: list[Frame], last: int) -> None:
    """The node gets a new store, in which the events of these frames up to ``last`` are applied, and no log."""
    disk = cluster.disks[name] = MemoryDisk(f"{name}2")
    replica = Replica(disk.base, *disk.base.load())
    for each in frames:
        events = each.events()[: max(0, last + 1 - each.first)]
        if events:
            replica.receive(encode_frame(each.generation, each.first, events, each.time_ms))
    replica.durable = last
    replica.apply(last)
    disk.base.write(replica.checkpoint())


def copied(node: MemoryNode) -> bool:
    return any("resynchronis" in line for line in node.lines)


@pytest.mark.parametrize("held", range(len(BODIES) + 1))
def test_a_store_that_ends_within_a_frame_catches_up(held: int) -> None:
    """The primary sends the rest of that frame; it would read its log again and again, and send nothing."""
    cluster = declared("q")
    a = cluster.primary
    away = next(name for name in cluster.nodes if name != a.name)
    cluster.kill(away)
    cluster.run(lambda: away not in ready(cluster))
    whole = publish_as_one(cluster)
    published(cluster, a, "behind")
    made_from_events(cluster, away, a.disk.frames, whole.first - 1 + held)
    cluster.start(away)
    cluster.settled()
    survivors_agree(cluster)
    assert not copied(cluster.nodes[away])
    cluster.kill(away)
    cluster.start(away)
    cluster.settled()
    for name in [name for name in cluster.nodes if name != away]:
        cluster.kill(name)
    cluster.run(lambda: cluster.nodes[away].state == "active")
    assert cluster.nodes[away].host.bodies("q") == [*BODIES, "behind"]


@pytest.mark.parametrize("held", range(1, len(BODIES)))
def test_a_primary_that_ends_within_a_frame_of_another(held: int) -> None:
    """Everything but an archive seems to be lost, and an operator makes a node from it primary. One of the others comes
    back: it says that it holds what it has in common with the primary, and keeps that, and no more.
    """
    cluster = declared("q", size=2)
    whole = publish_as_one(cluster)
    frames = list(cluster.disks["a"].frames)
    for name in ("a", "b"):
        cluster.kill(name)
    last = whole.first - 1 + held
    made_from_events(cluster, "b", frames, last)
    b = cluster.start("b")
    cluster.run(lambda: promote(b) is None)
    cluster.run(lambda: b.state == "active")
    a = cluster.start("a")
    assert a.core.replica.applied.sequence < whole.first <= whole.last == a.core.replica.tail.sequence
    cluster.settled()
    published(cluster, b, "after")
    assert f"discarding events after {last}, which the primary does not have" in a.lines and not copied(a)
    cluster.kill("a")
    a = cluster.start("a")
    cluster.settled()
    survivors_agree(cluster)
    cluster.kill("b")
    cluster.run(lambda: a.state == "active")
    assert a.host.bodies("q") == [*BODIES[:held], "after"]
