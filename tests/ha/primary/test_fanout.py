"""The way of frames to backups: each is taken once, leaves when it is durable, in order, and holds up no other
backup."""

from __future__ import annotations

from typing import Any

import pytest

from ha.effects import ReadLog
from ha.feed.recent_frames import RecentFrames
from ha.messages.stream import Commit, Entries
from ha.primary.fanout import Fanout
from tests.support.attachments import FRAMES, SETTINGS, B, C, Copy, Side
from tests.support.memory_cluster import MemoryCluster
from tests.support.steps import declared, publish, survivors_agree
from txobserver.events import Forget
from txobserver.frames import Frame
from txobserver.xid import Xid

pytestmark = pytest.mark.plain  # the replica is a double

XID = Xid(1, b"g", b"b")


def sent(side: Side) -> list[tuple[str, int, int]]:
    """To whom which frame was sent, by its sequence, and with which commit point."""
    by_data = {frame.data: frame.first for frame in FRAMES}
    return [(to, by_data[each.frame], each.commit) for to, each in side.said() if isinstance(each, Entries)]


def attached(*tails: int) -> Side:
    """Backups b and c, whose logs end so, and that have answered."""
    side = Side(B, C)
    for member, tail in zip((B, C), tails, strict=False):
        side.join(member, tail=tail)
        side.attachments.sessions[member.node].heard(100.0)
    return side


def test_nothing_leaves_before_it_is_durable_here() -> None:
    side = attached(6, 6)
    side.replica.durable = 8
    assert side.fanout.send(7, 101.0) is False
    assert sent(side) == [(peer, first, 7) for peer in "bc" for first in (7, 8)]
    side.replica.durable = 10
    side.fanout.send(8, 101.0)
    assert sent(side) == [(peer, first, 8) for peer in "bc" for first in (9, 10)]
    side.fanout.send(8, 101.0)
    assert sent(side) == [], "each frame goes to each backup once"


def test_who_lags_is_served_from_the_log_and_holds_up_no_other() -> None:
    side = attached(5, 9)
    side.fanout.recent = RecentFrames(1)
    side.fanout.take(FRAMES[-1])
    side.fanout.send(9, 101.0)
    assert [each for each in side.effects if isinstance(each, ReadLog)] == [ReadLog("b", 71, 6, SETTINGS.window_bytes)]
    assert sent(side) == [("c", 10, 9)]
    side.fanout.log_read(side.attachments.sessions["b"], FRAMES[1:3], 10)
    assert sent(side) == [("b", 6, 10), ("b", 7, 10)], "what was read goes to the one that it was read for"


def test_read_beyond_what_is_durable() -> None:
    """A seed found it: the log is read to its end, which is written and not synced yet."""
    side = attached(5)
    side.replica.durable = 6
    side.fanout.recent = RecentFrames(1)
    side.fanout.send(5, 101.0)
    side.fanout.log_read(side.attachments.sessions["b"], FRAMES[1:3], 5)
    assert [frame.first for frame in FRAMES[1:3]] == [6, 7] and sent(side) == [("b", 6, 5)]
    side.replica.durable = 7
    side.fanout.send(5, 101.0)
    side.fanout.log_read(side.attachments.sessions["b"], FRAMES[2:4], 5)
    assert sent(side) == [("b", 7, 5)], "it is read again when it is durable"


def test_a_joiner_that_copies_gets_no_frames() -> None:
    side = attached(6)
    copy: Any = Copy()
    side.attachments.sessions["b"].resync = copy
    side.fanout.send(10, 101.0)
    assert sent(side) == [] and copy.heard == [("go_on", 101.0)]
    side.fanout.tell_commit(10, 105.0)
    assert side.said() == [("b", Commit(3, 71, 0))], "nor a commit point, only that its attachment stands"


def test_only_a_backup_without_room_that_is_waited_for_keeps_clients_waiting() -> None:
    side = attached(8, 8)
    side.attachments.sessions["b"].full = True
    assert side.fanout.send(10, 101.0) is True
    assert sent(side) == [("c", 9, 10), ("c", 10, 10)]
    side.keeper.ready = {C}
    side.attachments.sessions["b"].guard.at = 99
    assert side.fanout.send(10, 101.0) is False


def test_a_joiner_that_does_not_catch_up_is_served_without_rests() -> None:
    side = attached(8, 8)
    side.keeper.ready = {C}
    joiner = side.attachments.sessions["b"]
    joiner.guard.at, joiner._throttle._until = 99, 1000.0
    side.fanout.send(10, 101.0)
    assert sent(side) == [("c", 9, 10), ("c", 10, 10)]
    joiner.hurried = True
    side.fanout.send(10, 101.0)
    assert sent(side) == [("b", 9, 10), ("b", 10, 10)]


class Noted(Fanout):
    """Notes what it is given, and sends nothing."""

    def __init__(self) -> None:
        self.taken: list[Frame] = []

    def take(self, frame: Frame) -> None:
        self.taken.append(frame)


@pytest.mark.plain
def test_the_writer_gives_each_frame_once_in_the_order_of_the_stream() -> None:
    cluster = declared("q")
    primary = cluster.primary
    assert primary.core.leading is not None
    writer: Any = primary.core.leading.primary.writer
    star, noted = writer._fanout, Noted()

    class Both(Noted):
        def take(self, frame: Frame) -> None:
            noted.take(frame)
            star.take(frame)

    writer._fanout = Both()
    written = len(primary.disk.frames)
    for number in range(20):
        publish(primary, "q", f"m{number}")
        cluster.turn()
    cluster.pause(0.5)
    assert noted.taken and noted.taken == primary.disk.frames[written:]
    survivors_agree(cluster)


@pytest.mark.plain
def test_a_fanout_that_sends_nothing_commits_nothing_and_loses_nothing() -> None:
    """A fanout may only delay: what it does not send is on no backup, so it does not pass the commit point."""
    cluster = MemoryCluster(prepare_timeout=60.0, silence=60.0, heartbeat_every=60.0).settled()
    primary = cluster.primary
    leading = primary.core.leading
    assert leading is not None
    star: Any = leading.backups.fanout
    leading.backups.fanout = Fanout()
    before = leading.primary.point.sequence
    primary.report(lambda: leading.primary.writer.append(Forget(XID)))
    cluster.pause(1.0)
    assert leading.primary.point.sequence == before and primary.core.replica.tail.sequence == before + 1
    leading.backups.fanout = star
    cluster.run(lambda: leading.primary.point.sequence == before + 1)
    survivors_agree(cluster)


def test_a_fanout_without_backups_takes_everything() -> None:
    alone = Fanout()
    alone.take(FRAMES[0])
    assert alone.send(10, 101.0) is False
    alone.tell_commit(10, 101.0)
