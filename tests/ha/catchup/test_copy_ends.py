"""A copy ends with the acknowledgement of its end: what counts then, and what is told to it no more."""

from __future__ import annotations

from typing import Any

from ha.messages.stream import Ack, Entries
from tests.support.copying import LARGE, joining
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import publish


def ended(cluster: MemoryCluster, away: str) -> tuple[MemoryNode, Any]:
    """A joiner whose checkpoint is held back, and its attachment, on which the end of the copy has been sent."""
    joiner = cluster.start(away, wipe=True)
    joiner.checkpoints_held = lambda write: not write.checkpoint.meta.resyncing
    assert cluster.primary.core.leading is not None
    sessions: dict[str, Any] = cluster.primary.core.leading.backups.sessions
    cluster.run(lambda: away in sessions and sessions[away].resync is not None and sessions[away].resync.ended_at)
    return joiner, sessions[away]


def test_a_copy_ends_with_the_acknowledgement_of_its_end_and_no_other() -> None:
    """P2, P9: the mark of the store is acknowledged a second time, or late; the snapshot is on no disk yet."""
    cluster, away = joining(LARGE)
    _, session = ended(cluster, away)
    primary = cluster.primary
    primary.report(lambda: primary.core.on_message(away, Ack(primary.core.generation, session.number, 0)))
    assert session.resync is not None and not session.past_guard


def test_a_copy_that_has_ended_is_told_nothing_any_more() -> None:
    """What the primary applies would gather in its memory for ever."""
    cluster, away = joining(LARGE)
    joiner, session = ended(cluster, away)
    copy, copies = session.resync, cluster.primary.core.leading.backups.attachments.copies
    assert copy in copies
    joiner.checkpoints_held = lambda write: False
    cluster.run(cluster.all_ready)
    assert copies == []


def test_a_copied_joiner_counts_only_with_all_that_was_made_meanwhile() -> None:
    """P9, P12: its guard stands at the tail of the moment when its snapshot was durable, not at the snapshot's end."""
    cluster, away = joining(LARGE)
    joiner, session = ended(cluster, away)
    end = session.resync.ended_at
    for number in range(5):
        publish(cluster.primary, "q", f"late {number}")
        cluster.turn()
    cluster.lose = lambda source, target, message: target == away and isinstance(message, Entries)
    joiner.checkpoints_held = lambda write: False
    cluster.run(lambda: session.resync is None)
    assert session.acknowledged == end and not session.past_guard
    assert session.guard.at >= end + 5
