"""Schedules in which an answer comes late or never: of the disk, behind a new role, or of the coordination store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ha.effects import CompareAndSet, Persist
from ha.membership.node_state import RECOVERING
from ha.messages.attaching import AttachmentRefused, Granted, Progress
from tests.ha.schedules.test_joiner import force_resync
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_disk import MemoryDisk
from tests.support.steps import all_agree, answered, backups_of, declared, publish
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
    cluster.run(lambda: heir.core.leading is not None)
    cluster.run(lambda: len(frames_on_their_way(heir)) == 2)
    return former.name, heir


def ends(node: MemoryNode) -> None:
    """The first of the writes on their way."""
    write = frames_on_their_way(node)[0]
    node.writes.remove(write)
    node._write(write)


def test_former_role_s_write_ends_late() -> None:
    """P12: it is not the end of the new primary's own write, which hangs: that must be noticed."""
    cluster = declared("q", size=2, link_down_grace=10.0)
    former, heir = promoted_while_it_writes(cluster)
    ends(heir)
    assert heir.core.leading is not None and heir.core.leading.primary.writer.writing and heir.state == RECOVERING
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
    primary = heir.core.leading.primary
    assert primary is not None
    for number in range(3):
        heir.report(lambda n=number: primary.writer.append(Delivered(1, n + 1)))  # type: ignore[misc]
    assert len(frames_on_their_way(heir)) == 1
    ends(heir)
    (frame,) = [write.frame for write in frames_on_their_way(heir)]
    assert frame.last - frame.first == 2
    heir.disk_held = False
    cluster.start(former)
    all_agree(cluster)


def answer_lost(cluster: MemoryCluster, wanted: Callable[[CompareAndSet], bool]) -> None:
    """The primary's next change of this kind lands, and its answer is an error. All changes before it are answered."""
    primary = next(node for node in cluster.nodes.values() if node.core.leading is not None)
    cluster.cas_held.add(primary.name)

    def next_one() -> CompareAndSet | None:
        found = [effect for node, effect in cluster.cas if node is primary]
        for effect in found:
            if wanted(effect):
                return effect
            cluster.cas.remove((primary, effect))
            cluster.land(primary, effect)
        return None

    cluster.run(lambda: next_one() is not None)
    effect = next_one()
    assert effect is not None
    cluster.cas.remove((primary, effect))
    cluster.land(primary, effect, report=False)
    primary.report(lambda: primary.core.on_cas_failed(effect))
    cluster.cas_held.clear()


def test_addition_met_by_a_conflict() -> None:
    """The joiner that the lost answer was about is told that it is ready, and so are people."""
    told: list[str] = []

    def look(source: str, target: str, message: object) -> bool:
        if isinstance(message, Granted):
            told.append(target)
        return False

    cluster = MemoryCluster(2)
    cluster.lose = look
    cluster.run(lambda: any(node.core.leading is not None for node in cluster.nodes.values()))
    answer_lost(cluster, lambda effect: len(effect.record.ready) == 2)
    cluster.pause(1.0)
    assert told == ["b"] and cluster.primary.lines.count("backup b is ready") == 1
    cluster.settled()


@pytest.mark.parametrize("attached", [True, False])
def test_removal_met_by_a_conflict(attached: bool) -> None:
    """Who was removed is told so, or finds its request to join taken up, at once and not with the next renewal."""
    told: list[tuple[str, str]] = []

    def look(source: str, target: str, message: object) -> bool:
        if isinstance(message, AttachmentRefused):
            told.append((target, message.reason))
        return isinstance(message, Progress)

    cluster = declared("q", prepare_timeout=0.5, silence=60.0)
    cluster.lose = look
    primary, (removed, _) = cluster.primary, backups_of(cluster)
    if attached:
        removed.disk_held = True
        publish(primary, "q", "m")
    else:
        cluster.kill(removed.name)
    answer_lost(cluster, lambda effect: len(effect.record.ready) == 2)
    left = f"{removed.name} is out of the ready set"
    assert left not in primary.lines and told == []
    cluster.run(lambda: left in primary.lines)
    cluster.pause(0.05)
    assert primary.lines.count(left) == 1
    assert told == ([(removed.name, "taken out of the ready set")] if attached else [])
    removed.disk_held = False
    if not attached:
        publish(primary, "q", "m")
        cluster.start(removed.name)
    answered(cluster, primary, "publish m")
    all_agree(cluster)


def test_a_joiner_that_waits_for_its_removal_is_attached_when_a_conflict_tells_of_it() -> None:
    """Its disk was set back, so it must leave the ready set before it is attached; no renewal has to come first."""
    cluster = declared("q")
    primary, (removed, _) = cluster.primary, backups_of(cluster)
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    cluster.kill(removed.name)
    cluster.disks[removed.name] = MemoryDisk(removed.member.incarnation)
    force_resync(primary)
    cluster.start(removed.name)
    answer_lost(cluster, lambda effect: len(effect.record.ready) == 2)
    backups = primary.core.leading.backups
    assert backups is not None and backups.sessions.keys() & {removed.name} == set()
    cluster.run(lambda: any(node is primary for node, _ in cluster.cas))
    cluster._do_cas()
    assert removed.name in backups.sessions, "the conflict has been told, and nothing else"
    cluster.settled()
