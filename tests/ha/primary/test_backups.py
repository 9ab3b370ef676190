"""The primary's side of all attachments, one rule a test, its neighbours played by the test (``backups``)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.effects import ReadLog
from ha.feed.recent_frames import RecentFrames
from ha.messages.attaching import AttachmentRefused, Follow, Granted, Join, Leave, Progress
from ha.messages.copying import Missing
from ha.messages.stream import Ack, Cancel, Commit, Entries
from ha.primary import joins
from ha.primary.backups import LOG_TOO_SHORT
from tests.support.attachments import FRAMES, HISTORY, SETTINGS, TAIL, A, B, C, Copy, Side
from txobserver.ids import Member, Position

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "Resync", Copy)


def ended(number: int = 71, reason: str = "this attachment has ended") -> list[tuple[str, Any]]:
    return [("b", AttachmentRefused(3, number, reason))]


def test_one_whose_log_is_a_prefix_of_ours_follows_from_its_end() -> None:
    side = Side(B, C)
    assert side.join(tail=8) == [("b", Follow(3, 71, 8, 4))]
    session = side.ours.sessions["b"]
    assert (session.acknowledged, session.guard.at, session.resync, session.member) == (8, 10, None, B)
    assert side.asked() == [] and side.attachments.may_succeed("b", 71)
    assert not side.attachments.may_succeed("b", 70) and not side.attachments.may_succeed("c", 71)


def test_one_that_speaks_for_another_is_refused() -> None:
    side = Side(B, C)
    side.ours.take("c", Join(3, 71, B, HISTORY, TAIL, 7, False), 1, 100.0)
    assert side.said() == [("c", AttachmentRefused(3, 71, "b speaks for itself"))] and side.ours.sessions == {}


def test_one_that_is_no_member_of_the_cluster_is_refused() -> None:
    side = Side(C)
    side.keeper.stranger = "b is no member"
    assert side.join(tail=8) == ended(reason="b is no member") and side.ours.sessions == {}


@pytest.mark.parametrize(
    ("words", "copied"),
    [
        ({"resyncing": True}, True),
        ({"history": [Position(1, 1), Position(2, 4)], "generation": 2, "tail": 9, "applied": 3}, False),
        ({"history": [Position(1, 1), Position(2, 4)], "generation": 2, "tail": 9, "applied": 4}, True),
    ],
)
def test_one_that_must_undo_something_leaves_the_ready_set_before(words: dict[str, Any], copied: bool) -> None:
    side = Side(B)
    assert side.join(**words) == [] and side.ours.sessions == {}
    assert side.asked() == [("remove", B, 100.0)]
    side.ours.record_stored((A, B), 1, 101.0)
    assert side.ours.sessions == {}, "it still counts"
    side.keeper.ready.clear()
    side.keeper.record = SimpleNamespace(ready=(A,))
    side.ours.record_stored((A, B), 1, 101.0)
    found = [type(message) for _, message in side.said()]
    assert (side.ours.sessions["b"].resync is not None) == copied and (Follow in found) == (not copied)
    assert len(side.attachments.copies) == copied
    if not copied:
        assert side.ours.sessions["b"].acknowledged == 3


def test_one_that_is_gone_before_it_has_left_the_ready_set_is_not_attached() -> None:
    """What it had asked for is asked no more: it would be waited for, and its log may be another one by now."""
    side = Side(B)
    assert side.join(resyncing=True) == [] and side.ours.sessions == {}
    side.attachments.detach("b", 100.5)
    side.keeper.ready.clear()
    side.keeper.record = SimpleNamespace(ready=(A,))
    side.ours.record_stored((A, B), 1, 101.0)
    assert side.ours.sessions == {} and side.said() == []


def test_a_log_that_begins_right_behind_what_is_common_is_enough() -> None:
    for first, copied in ((9, False), (10, True)):
        side = Side(C)
        side.ours.take("b", Join(3, 71, B, HISTORY, Position(3, 8), 8, False), first, 100.0)
        assert (side.ours.sessions["b"].resync is not None) == copied
        assert (side.ours.sessions["b"].guard.at > 1 << 60) == copied
        assert side.ours.sessions["b"].acknowledged == (-1 if copied else 8)


def test_an_attachment_ends_the_one_before_and_another_store_the_member_before() -> None:
    side = Side(B, C)
    side.join()
    first = side.ours.sessions["b"]
    newer = Member("b", "b2")
    assert side.join(newer, tail=8) == [("b", Follow(3, 71, 8, 4))]
    assert side.ours.sessions["b"] is not first and side.ours.sessions["b"].member == newer
    assert side.asked() == [("forget", B), ("remove", B, 100.0)]
    assert not side.attachments.may_succeed("b", 71), "the new store is not ready"


def test_a_joiner_is_tracked_for_what_is_closed_when_it_comes() -> None:
    side = Side(C)
    buffer = SimpleNamespace(tx=5, prepared=20, decided=None, queues=lambda: {1})
    side.replica.buffers = {5: buffer, 6: SimpleNamespace(tx=6, prepared=None, decided=None)}
    side.join(tail=8)
    session = side.ours.sessions["b"]
    session._next = 13
    side.take(Ack(3, 71, 10))
    assert session.past_guard and not session.trackers.clear, "it is not decided"
    side.attachments.decided(5, True, 12)
    side.take(Ack(3, 71, 11))
    assert not session.trackers.clear
    side.take(Ack(3, 71, 12))
    assert session.trackers.clear
    buffer.decided = 10
    side.join(tail=8)
    session = side.ours.sessions["b"]
    session._next = 11
    side.take(Ack(3, 71, 9))
    assert not session.trackers.clear
    side.take(Ack(3, 71, 10))
    assert session.trackers.clear, "what was decided is known from the start"


def test_what_is_closed_later_is_tracked_for_those_that_take_no_part() -> None:
    side = Side(C)
    side.join(B, tail=8)
    side.join(C, tail=10)
    side.take(Ack(3, 71, 10), "c")
    buffer: Any = SimpleNamespace(tx=5, prepared=9, queues=lambda: {1})
    side.attachments.closed(buffer)
    trackers = {node: each.trackers for node, each in side.ours.sessions.items()}
    assert not trackers["b"].clear and trackers["c"].clear
    side.attachments.decided(5, False, 12)
    side.ours.sessions["b"]._next = 11
    side.take(Ack(3, 71, 10))
    assert trackers["b"].clear, "it was rolled back"
    side.attachments.closed(buffer)
    assert trackers["b"].clear, "it takes part now"


def test_what_is_said_in_no_attachment_is_refused_or_not_heard() -> None:
    side = Side(B, C)
    side.join(tail=8)
    assert side.take(Ack(3, 70, 9)) == ended(70)
    assert side.take(Progress(3, 70, 0, True)) == ended(70)
    side.asked()
    for message in (Missing(3, 70, 1, []), Cancel(3, 70, 5, "no"), Leave(3, 70, "full")):
        assert side.take(message) == [] and side.asked() == [] and side.cancelled == []
    assert side.ours.sessions["b"].acknowledged == 8 and not side.ours.sessions["b"].full
    side.ours.log_read("b", 70, [], 101.0)
    assert side.said() == [] and "b" in side.ours.sessions


def test_what_is_said_in_an_attachment_is_heard() -> None:
    side = Side(B, C)
    side.join(tail=8)
    side.take(Progress(3, 71, 0, True))
    assert side.ours.sessions["b"].full and side.ours.sessions["b"].progress_at == 100.0
    assert side.take(Missing(3, 71, 1, [])) == []
    side.take(Cancel(3, 71, 5, "no room"))
    assert side.cancelled == [(5, "no room")]
    side.take(Leave(3, 71, "its disk is full"))
    assert side.ours.sessions == {} and side.asked() == [("forget", B), ("remove", B, 101.0)]


def test_an_acknowledgement_goes_up_to_what_was_sent() -> None:
    side = Side(C)
    side.join(tail=8)
    assert side.take(Ack(3, 71, 8)) == []
    assert side.take(Ack(3, 71, 9)) == ended(71, "it acknowledges what was never sent") and side.ours.sessions == {}


def test_what_is_durable_everywhere() -> None:
    side = Side(B, C)
    assert side.attachments.durable_everywhere() == 0, "those that count are not there"
    side.join(B, tail=9)
    assert side.attachments.durable_everywhere() == 0
    side.join(C, tail=8)
    assert side.attachments.durable_everywhere() == 8
    side.replica.durable = 7
    assert side.attachments.durable_everywhere() == 7
    alone = Side()
    assert alone.attachments.durable_everywhere() == 10
    alone.join(tail=8)
    assert alone.attachments.durable_everywhere() == 10, "a joiner before its guard is not waited for"
    alone.ours.sessions["b"].guard.at = 8
    assert alone.attachments.durable_everywhere() == 10, "nor one that has only asked"
    alone.replica.tail = Position(3, 8)
    alone.take(Ack(3, 71, 8))
    assert alone.attachments.durable_everywhere() == 8
    other = Side(Member("b", "b0"))
    other.join(tail=10)
    assert other.attachments.durable_everywhere() == 0, "another store of that node"


def test_who_holds_it_and_who_takes_part() -> None:
    side = Side(B)
    side.join(B, tail=9)
    side.join(C, tail=10)
    assert side.attachments.participants() == ["a", "b"], "c has only asked"
    side.take(Ack(3, 71, 10), "c")
    assert side.attachments.holders(9) == [B] and side.attachments.holders(10) == []
    assert side.attachments.participants() == ["a", "b", "c"], "c is past its guard"
    side.ours.sessions["c"].guard.at = 11
    assert side.attachments.participants() == ["a", "b"]


def test_entries_are_sent_to_whoever_has_room() -> None:
    side = Side(B, C)
    side.join(B, tail=8)
    side.join(C, tail=9)
    for session in side.ours.sessions.values():
        session.heard(100.0)
    side.ours.pump(101.0)
    entries = [(peer, message.frame) for peer, message in side.said() if isinstance(message, Entries)]
    assert entries == [("b", FRAMES[4].data), ("b", FRAMES[5].data), ("c", FRAMES[5].data)]
    assert side.attachments.full is False
    side.take(Progress(3, 71, 0, True))
    side.ours.pump(101.0)
    assert side.attachments.full is True, "the commits wait for it"
    side.keeper.ready = {C}
    side.ours.sessions["b"].guard.at = 99
    side.ours.pump(101.0)
    assert side.attachments.full is False, "they do not"


def test_what_is_read_from_the_log_is_sent_and_what_is_gone_is_copied() -> None:
    side = Side(B, C)
    side.join(tail=4, applied=4)
    side.ours.sessions["b"].heard(100.0)
    side.fanout.recent = RecentFrames(1)
    side.ours.pump(101.0)
    (read,) = [each for each in side.effects if isinstance(each, ReadLog)]
    assert read == ReadLog("b", 71, 5, SETTINGS.window_bytes)
    side.effects.clear()
    side.ours.log_read("b", 71, FRAMES[:1], 101.0)
    assert [(peer, message.frame) for peer, message in side.said()] == [("b", FRAMES[0].data)]
    side.ours.log_read("b", 71, [], 101.0)
    assert side.said() == ended(71, LOG_TOO_SHORT) and side.ours.sessions == {}
    side.asked()
    assert side.join(tail=4, applied=4) == [] and side.asked() == [("remove", B, 100.0)], "it must be copied to"
    side.keeper.ready = {C}
    assert side.join(tail=4, applied=4) == [] and side.ours.sessions["b"].resync is not None
    side.attachments.detach("b", 101.0)
    assert side.attachments.copies == []
    assert [type(message) for _, message in side.join(tail=4, applied=4)] == [Follow], "once"


def test_the_commit_point_is_told_to_each() -> None:
    side = Side(B, C)
    side.join(B, tail=10)
    side.join(C, tail=10)
    side.ours.tell_commit(101.0)
    assert side.said() == [("b", Commit(3, 71, 4)), ("c", Commit(3, 71, 4))]


def test_one_in_step_becomes_ready() -> None:
    side = Side(C)
    side.join(B, tail=10)
    side.join(C, tail=10)
    side.ours.grant(102.0)
    assert side.asked() == [], "it has only asked"
    side.take(Ack(3, 71, 10))
    side.ours.grant(102.0)
    assert side.asked() == [("add", B, 102.0)]
    side.primary.point.sequence = 11
    side.ours.grant(102.0)
    assert side.asked() == [], "it lacks what has passed"
    side.primary.point.sequence = 10
    side.ours.sessions["b"].guard.at = 11
    side.ours.grant(102.0)
    assert side.asked() == [], "it is not past its guard"
    side.ours.sessions["b"].guard.at = 10
    side.ours.sessions["b"].trackers.track(5, {1}, 9)
    side.ours.sessions["b"].trackers.decide(5, 11)
    side.ours.grant(102.0)
    assert side.asked() == [], "it waits for a transaction"


def test_who_is_new_in_the_record_is_told_and_who_is_out_is_let_go() -> None:
    side = Side(B)
    side.join(B)
    side.join(C)
    side.keeper.record = SimpleNamespace(ready=(A, B, C))
    side.ours.record_stored((A, B), 1, 101.0)
    assert side.said() == [("c", Granted(3, 71))]
    side.keeper.record = SimpleNamespace(ready=(A, C))
    side.ours.record_stored((A, B, C), 1, 101.0)
    assert side.said() == ended(71, "taken out of the ready set") and list(side.ours.sessions) == ["c"]


def test_a_copy_is_begun_heard_and_ended() -> None:
    """Its first acknowledgement is that the store is marked, its last that the snapshot's end is durable."""
    side = Side(C)
    side.join(resyncing=True)
    session = side.ours.sessions["b"]
    copy: Any = session.resync
    expected = ("b", 3, 71, side.replica, side.effects.append, SETTINGS.portion_bytes, SETTINGS.window_bytes)
    assert copy.words == expected and side.attachments.copies == [copy]
    side.take(Ack(3, 71, 0), now=102.0)
    assert copy.heard == [("store_marked", 102.0)] and session.progress_at == 102.0
    missing = Missing(3, 71, 1, [4])
    side.take(missing, now=103.0)
    assert copy.heard[1:] == [("missing", missing, 103.0)] and session.progress_at == 103.0
    side.take(Progress(3, 71, 8, False), now=104.0)
    assert copy.heard[2:] == [("progress", 8, False, 104.0)]
    copy.ended_at = 9
    assert side.take(Ack(3, 71, 8), now=105.0) == [] and session.resync is copy
    assert side.take(Ack(3, 71, 9), now=106.0) == []
    assert session.resync is None and side.attachments.copies == []
    assert (session.acknowledged, session.sent, session.guard.at, session.progress_at) == (9, 9, 10, 106.0)
    assert session.trackers.clear and len(copy.heard) == 3


def test_who_is_attached_and_does_not_count_yet_must_know_a_feature_too() -> None:
    """What is written with it reaches a joiner as well, which would have to leave. One that is gone is not asked."""
    side = Side(C)
    assert side.attachments.lacking("x") == ["c"]
    side.join(B, tail=8)
    assert side.attachments.lacking("x") == ["b", "c"]
    side.attachments.detach("b", 101.0)
    assert side.attachments.lacking("x") == ["c"]
