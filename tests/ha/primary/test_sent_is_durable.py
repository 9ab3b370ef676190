"""A primary sends what is durable on itself, never more: so no backup is ahead of its primary's disk."""

from __future__ import annotations

from ha.feed.recent_frames import RecentFrames
from tests.support.steps import declared, publish, survivors_agree


def test_a_primary_reads_its_log_while_it_writes_it() -> None:
    """A member comes back and is behind; what is read for it ends with a frame that the primary's disk works on."""
    cluster = declared("q", prepare_timeout=60.0, silence=60.0, backup_timeout=60.0, link_down_grace=60.0)
    primary = cluster.primary
    backup = next(node for node in cluster.nodes.values() if node is not primary)
    cluster.partition(backup.name)
    publish(primary, "q", "m0")
    cluster.pause(0.1)
    assert primary.core.leading is not None
    primary.core.leading.fanout.recent = RecentFrames(0)
    primary.disk_held = True
    publish(primary, "q", "m1")
    durable = primary.disk.durable
    assert durable < primary.core.replica.tail.sequence and backup.disk.durable < durable
    cluster.heal()
    cluster.run(lambda: backup.disk.durable >= durable)
    cluster.pause(0.5)
    assert backup.disk.durable == durable == primary.disk.durable
    primary.disk_held = False
    cluster.run(lambda: backup.disk.durable == primary.core.replica.tail.sequence)
    survivors_agree(cluster)
