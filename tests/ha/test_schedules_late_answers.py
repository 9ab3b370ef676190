"""Schedules in which an answer comes late or never: of the disk, behind a new role, or of the coordination store."""

from __future__ import annotations

from ha.node_state import RECOVERING
from tests.ha.memory_cluster import MemoryCluster, MemoryNode
from tests.ha.steps import all_agree, backups_of, declared, publish
from txobserver.effects import Persist
from txobserver.events import Delivered


def frames_on_their_way(node: MemoryNode) -> list[Persist]:
    return [write for write in node.writes if isinstance(write, Persist)]


def promoted_while_it_writes(cluster: MemoryCluster) -> tuple[str, MemoryNode]:
    """The primary dies and its backup takes over, while a frame of the former role is on its way to the disk."""
    former, (heir,) = cluster.primary, backups_of(cluster)
    heir.disk_held = True
    publish(former, "q", "m")
    cluster.run(lambda: len(frames_on_their_way(heir)) == 1)
    cluster.kill(former.name)
    cluster.run(lambda: heir.core.primary is not None)
    cluster.run(lambda: len(frames_on_their_way(heir)) == 2)
    return former.name, heir


def ends(node: MemoryNode) -> None:
    """The first of the writes on their way."""
    write = frames_on_their_way(node)[0]
    node.writes.remove(write)
    node._write(write)


def test_former_role_s_write_ends_late() -> None:
    """P12: it is not the end of the new primary's own write, which hangs: that must be noticed."""
    cluster = declared("q", size=2)
    former, heir = promoted_while_it_writes(cluster)
    ends(heir)
    assert heir.core.primary is not None and heir.core.primary.writing and heir.state == RECOVERING
    cluster.start(former)
    cluster.run(lambda: any("the disk has not written for 3 s" in line for line in heir.lines), seconds=4.0)
    cluster.run(lambda: cluster.nodes[former].state == "active")
    record = cluster.coordination.record
    assert record is not None and [member.node for member in record.ready] == [former]


def test_a_new_primary_writes_one_group_at_a_time() -> None:
    """Also behind a write of its former role: what gathers meanwhile shares the next frame."""
    cluster = declared("q", size=2)
    former, heir = promoted_while_it_writes(cluster)
    ends(heir)
    primary = heir.core.primary
    assert primary is not None
    for number in range(3):
        heir.report(lambda n=number: primary.append(Delivered(1, n + 1)))  # type: ignore[misc]
    assert len(frames_on_their_way(heir)) == 1
    ends(heir)
    (frame,) = [write.frame for write in frames_on_their_way(heir)]
    assert frame.last - frame.first == 2
    heir.disk_held = False
    cluster.start(former)
    all_agree(cluster)
