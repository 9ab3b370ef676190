"""What an earlier attachment left on its way changes nothing of a later one, and nothing is kept for one that ended."""

from __future__ import annotations

from typing import Any

from ha.effects import ResetLog
from ha.messages.attaching import AttachmentRefused, Progress
from ha.messages.copying import Missing
from ha.messages.stream import Ack
from ha.messages.wire import decode
from tests.ha.apply.test_slow_checkpoints import resyncs
from tests.ha.schedules.test_record import published, ready
from tests.support.copying import LARGE, joining
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import backups_of, declared, publish, survivors_agree


def sessions_of(node: MemoryNode) -> dict[str, Any]:
    """The attachments of a primary's backups."""
    assert node.core.leading is not None
    return node.core.leading.backups.sessions


def listeners_of(node: MemoryNode) -> list[Any]:
    """Which node learns what a primary applies."""
    assert node.core.leading is not None
    return node.core.leading.backups.attachments.copies


def refused(cluster: MemoryCluster, name: str) -> list[int]:
    """The attachments that this node is being told to be none."""
    found = [decode(data) for _, target, data in cluster.wire if target == name]
    return [each.session for each in found if isinstance(each, AttachmentRefused)]


def test_an_acknowledgement_of_what_was_not_sent_is_none() -> None:
    """P2, P11: of a backup that has not been sent an event the primary may not say that it has it on its disk."""
    cluster = declared("q", size=2, prepare_timeout=60.0, silence=60.0)
    primary, (b,) = cluster.primary, backups_of(cluster)
    session = sessions_of(primary)[b.name]
    primary.disk_held = True
    publish(primary, "q", "m")
    tail = primary.core.replica.tail.sequence
    assert session.sent < tail
    ack = Ack(primary.core.generation, session.number, tail)
    primary.report(lambda: primary.core.on_message(b.name, ack))
    assert session.acknowledged < tail and b.name not in sessions_of(primary)


def test_a_member_whose_next_events_cannot_be_read_leaves_the_ready_set_before_it_is_copied() -> None:
    """P2: a segment of the primary's log is damaged. And it is copied once, not at each attachment from then on."""
    cluster = declared("q", size=2, prepare_timeout=60.0, silence=60.0)
    primary, (b,) = cluster.primary, backups_of(cluster)
    published(cluster, primary, "m0")
    session = sessions_of(primary)[b.name]
    primary.report(lambda: primary.core.on_log_read(b.name, session.number, []))

    def copies() -> bool:
        assert not (b.core.replica.resyncing and b.name in ready(cluster))
        return b.core.replica.resyncing

    cluster.run(copies)
    cluster.run(cluster.all_ready)
    cluster.partition(b.name)
    cluster.turn()
    cluster.heal()
    cluster.run(lambda: b.core.following is not None and b.core.following.backup.attached)
    survivors_agree(cluster)
    assert resyncs(b) == 1


def test_an_earlier_attachment_s_reset_ends_no_later_copy() -> None:
    """Its log writer is slow: the log is emptied for the former copy when the next one has come to its end."""
    cluster = declared("q", prepare_timeout=60.0, silence=60.0)
    name = backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.run(lambda: len(ready(cluster)) == 2)
    publish(cluster.primary, "q", "m")
    cluster.primary.core.log_first = cluster.primary.disk.frames[-1].last + 1
    joiner = cluster.start(name, wipe=True)

    def resets() -> list[ResetLog]:
        return [write for write in joiner.writes if isinstance(write, ResetLog)]

    cluster.run(lambda: bool(resets()))
    (former,) = resets()
    joiner.writes.remove(former)
    cluster.partition(name)
    cluster.turn()
    cluster.heal()
    cluster.run(lambda: bool(resets()))
    (later,) = resets()
    assert later is not former
    joiner.report(lambda: joiner.core.on_reset(former))
    assert joiner.core.replica.resyncing, "the log is not empty yet"
    cluster.run(cluster.all_ready)
    cluster.check_agreement()


def test_what_an_earlier_attachment_says_of_its_copy_moves_no_other() -> None:
    """P9: a late Progress or Missing would count for parts of the copy that is under way now."""
    cluster, away = joining(*[LARGE] * 40)
    primary = cluster.primary
    cluster.start(away, wipe=True)
    sessions = sessions_of(primary)
    cluster.run(lambda: away in sessions and sessions[away].resync is not None and sessions[away].resync._asked)
    session = sessions[away]
    copy = session.resync
    before, at = (copy.held, copy._asked), session.progress_at
    former, generation = session.number - 1, primary.core.generation
    walked = copy._walking.queue
    cluster.wire.clear()
    primary.report(lambda: primary.core.on_message(away, Missing(generation, former, walked, [])))
    primary.report(lambda: primary.core.on_message(away, Progress(generation, former, 1000, True)))
    assert (copy.held, copy._asked) == before and not copy.full and session.progress_at == at
    assert refused(cluster, away) == [former], "who thinks it is attached is told"


def test_a_copy_whose_attachment_has_ended_gathers_nothing() -> None:
    """What the primary applies would wait in its memory for ever for a backup that is gone."""
    cluster, away = joining(*[LARGE] * 20)
    primary = cluster.primary
    cluster.start(away, wipe=True)
    sessions = sessions_of(primary)
    cluster.run(lambda: away in sessions and sessions[away].resync is not None and sessions[away].resync._marked)
    assert len(listeners_of(primary)) == 1
    cluster.kill(away)
    assert listeners_of(primary) == []
