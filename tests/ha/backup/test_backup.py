"""The backup's end of an attachment: what it takes, answers and asks, one rule a test (``ha.backup.backup``)."""

from __future__ import annotations

from typing import Any

import pytest

from ha.apply.replica import Replica
from ha.backup import backup as backup_module
from ha.backup import progress_reports
from ha.backup.backup import Backup
from ha.catchup import queue_replicator
from ha.effects import Acknowledge, LogLine, Persist, Send, Truncate
from ha.log_events import OverwritingRefused
from ha.messages.attaching import Follow, Join, Leave, Progress
from ha.messages.copying import ForwardTx, Missing, QueueSnapshot, ResyncBegin
from ha.messages.stream import Commit, Entries
from ha.settings import Settings
from tests.support.memory_host import text
from txobserver.events import Delivered, TxOpen
from txobserver.frames import encode_frame
from txobserver.ids import Member, Position
from txobserver.ports.store import MemoryBase

SETTINGS = Settings(rejoin_every=0.5, heartbeat_every=1.0, silence=3.0)
FRAMES = [encode_frame(1, sequence, [TxOpen(sequence)], 0) for sequence in range(1, 4)]


class Side:
    """Backup b of primary a, with an empty store; ``said`` is what it emits. Time goes on as the test says."""

    def __init__(self) -> None:
        base = MemoryBase()
        self.replica = Replica(base, *base.load())
        self.effects: list[Any] = []
        self.checkpoints: list[Acknowledge] = []
        self.now = 100.0
        self.backup = Backup(
            "a", 1, Member("b", "b1"), self.replica, SETTINGS, self.effects.append, self.checkpoints.append
        )

    def said(self) -> list[Any]:
        """What it has emitted since the last call, but for lines of its log."""
        found = [each for each in self.effects if not isinstance(each, LogLine)]
        self.effects.clear()
        return found

    def tick(self, after: float = 0.1, session: int = 99) -> list[Any]:
        self.now += after
        self.backup.tick(True, session, self.now)
        return self.said()

    def take(self, message: Any) -> list[Any]:
        self.backup.take(message, self.now)
        return self.said()

    def asked(self) -> Side:
        (join,) = self.tick(session=7)
        assert isinstance(join, Send) and isinstance(join.message, Join) and join.message.session == 7
        return self

    def following(self) -> Side:
        """Attached at 0 in attachment 7."""
        self.asked().take(Follow(1, 7, 0, 0))
        return self

    def holding_all(self) -> Side:
        """Attached so, with FRAMES on the disk and applied."""
        self.following()
        for frame in FRAMES:
            self.take(Entries(1, 7, 0, frame.data))
        self.backup.written(3)
        self.take(Commit(1, 7, 3))
        return self


def test_who_is_told_to_follow_is_attached_and_takes_the_stream() -> None:
    side = Side().asked()
    assert not side.backup.attached
    assert side.take(Follow(1, 7, 0, 0)) == [Truncate(0, Acknowledge("a", 1, 7, 0))]
    assert side.backup.attached
    assert side.take(Entries(1, 7, 0, FRAMES[0].data)) == [Persist(FRAMES[0], Acknowledge("a", 1, 7, 1))]
    assert side.replica.tail == Position(1, 1)


def test_a_frame_of_a_generation_that_has_not_begun_is_not_taken() -> None:
    """P10: the primary of generation 1 cannot have it, not even one of the next generation."""
    side = Side().following()
    (left,) = side.take(Entries(1, 7, 0, encode_frame(2, 1, [TxOpen(1)], 0).data))
    assert isinstance(left.message, Leave) and "generation 2 has not begun" in left.message.reason
    assert not side.backup.attached and side.replica.tail == Position(0, 0)


def test_who_cannot_follow_is_not_attached() -> None:
    """The primary names an offset of the log that this node never had."""
    side = Side().asked()
    assert side.backup.follow(Follow(1, 7, 5, 0)) is False and not side.backup.attached
    assert [type(each.message) for each in side.said()] == [Leave]


@pytest.mark.plain
def test_that_it_is_full_is_said_with_the_commit_that_makes_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the next tick: a fast primary sends much between two of them."""
    side = Side().following()
    side.tick()
    monkeypatch.setattr(progress_reports, "behind", lambda replica, settings: replica.applied.sequence > 0)
    side.take(Entries(1, 7, 0, FRAMES[0].data))
    side.backup.written(1)
    assert side.said() == []
    assert side.take(Commit(1, 7, 1)) == [Send("a", Progress(1, 7, 0, True))]


@pytest.mark.plain
def test_that_it_has_caught_up_is_said_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its primary holds clients up until then, and nothing else may come."""
    side = Side().following()
    side.tick()
    for full in (True, False):
        for module in (backup_module, progress_reports):
            monkeypatch.setattr(module, "behind", lambda replica, settings, now=full: now)
        assert side.tick(0.01) == [Send("a", Progress(1, 7, 0, full))] and side.tick(0.01) == []


def test_it_asks_until_an_answer_comes_and_then_no_more() -> None:
    side = Side().asked()
    assert side.tick(0.4) == []
    (again,) = side.tick(0.11, session=8)
    assert isinstance(again.message, Join) and again.message.session == 8
    assert side.take(Follow(1, 7, 0, 0)) == [], "this answers what it asked before"
    side.take(Follow(1, 8, 0, 0))
    assert side.backup.attached
    for _ in range(20):
        assert not any(isinstance(each.message, Join) for each in side.tick())
    assert side.take(Follow(1, 8, 0, 0)) == [], "it is attached already"


def test_who_has_no_connection_asks_nothing_and_asks_at_once_when_it_has_one() -> None:
    side = Side()
    side.backup.tick(False, 6, side.now)
    assert side.said() == []
    side.asked()


def test_what_belongs_to_no_attachment_of_its_own_is_not_taken() -> None:
    for side, session in ((Side().asked(), 7), (Side().following(), 6)):
        assert side.take(Entries(1, session, 0, FRAMES[0].data)) == []
        assert side.take(Commit(1, session, 1)) == []
        assert side.replica.tail == Position(0, 0)
    ended = Side().following()
    ended.backup.detach(retry_at_once=False)
    assert ended.take(Entries(1, 7, 0, FRAMES[0].data)) == [] and ended.replica.tail == Position(0, 0)


def test_a_part_of_a_copy_that_was_not_begun_is_not_taken() -> None:
    side = Side().following()
    assert side.take(ForwardTx(1, 7, 4, [(9, TxOpen(4))])) == [] and side.backup.attached


def test_it_takes_its_primary_for_silent_only_while_attached() -> None:
    side = Side().asked()
    assert not side.backup.silent(200.0)
    side.take(Follow(1, 7, 0, 0))
    assert not side.backup.silent(side.now + 3.0) and side.backup.silent(side.now + 3.01)
    side.now += 2.0
    side.take(Commit(1, 7, 0))
    assert not side.backup.silent(side.now + 3.0), "any word of this attachment counts"
    side.now += 2.0
    side.take(Commit(1, 6, 0))
    assert side.backup.silent(side.now + 1.01), "one of an earlier attachment does not"


def test_it_says_once_in_a_while_that_it_is_alive() -> None:
    side = Side().following()
    assert side.tick() == [Send("a", Progress(1, 7, 0, False))]
    assert side.tick(0.9) == []
    assert side.tick(0.11) == [Send("a", Progress(1, 7, 0, False))]


def test_a_primary_that_lacks_what_has_passed_is_told_that_it_will_not_be_followed() -> None:
    """``older_record_restored``: it is not to wait for a backup that waits for an operator."""
    side = Side().holding_all()
    assert side.replica.applied == Position(1, 3)
    side.backup.detach(retry_at_once=True)
    assert isinstance(side.tick(session=8)[0].message, Join)
    side.backup.take(ResyncBegin(1, 8, [Position(1, 1)], Position(1, 2)), side.now)
    (line,) = [each for each in side.effects if isinstance(each, LogLine)]
    assert line.warning and line.event == OverwritingRefused(side.backup.refusal or ""), "an operator must see it"
    (leave,) = side.said()
    assert isinstance(leave.message, Leave) and (leave.peer, leave.message.session) == ("a", 8)
    assert side.backup.refusal is not None and "txha discard" in side.backup.refusal
    assert not side.backup.attached and side.replica.whole and side.checkpoints == []
    assert side.tick(10.0) == [], "it asks no more"


def test_one_that_is_being_overwritten_lets_any_primary_go_on_with_that() -> None:
    """What it had applied is gone already, and was in the log of the primary that began."""
    side = Side().holding_all()
    side.backup.detach(retry_at_once=True)
    side.replica.begin_resync()
    side.tick(session=8)
    side.take(ResyncBegin(1, 8, [Position(1, 1)], Position(1, 2)))
    assert side.backup.attached and side.backup.refusal is None


@pytest.mark.plain
def test_a_part_of_a_copy_that_takes_many_turns_is_finished_by_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No further part comes before the backup has answered this one."""
    monkeypatch.setattr(queue_replicator, "STEP", 1)
    side = Side()
    surplus = range(3 * queue_replicator.STEPS)
    side.replica.contents.queues.add(1)
    for offset in surplus:
        side.replica.contents.queues.insert(1, offset, 1000 + offset, text("surplus"))
    side.asked().take(ResyncBegin(1, 7, [], Position(1, 9)))
    said = side.take(QueueSnapshot(1, 7, 1, -1, len(surplus), [(len(surplus), 1)]))
    assert 0 < side.replica.contents.queues.summary(1).count < len(surplus), "some is done, and some is left"
    for _ in range(3):
        said += side.tick()
    assert [each.message for each in said if isinstance(each.message, Missing)] == [Missing(1, 7, 1, [len(surplus)])]
    assert side.replica.contents.queues.summary(1).count == 0


def test_a_snapshot_that_cannot_be_is_left_with_one_word() -> None:
    """What it has got of it is of no account any more: a report of that would be for no attachment at all."""
    side = Side().asked()
    side.take(ResyncBegin(1, 7, [], Position(1, 9)))
    assert side.take(ForwardTx(1, 7, 4, [(9, TxOpen(4))])) == [Send("a", Progress(1, 7, 1, False))]
    (left,) = side.take(ForwardTx(1, 7, 5, [(10, TxOpen(6))]))
    assert isinstance(left.message, Leave) and left.message.session == 7 and not side.backup.attached


def test_one_that_is_being_copied_to_follows_nobody_from_its_log() -> None:
    side = Side()
    side.replica.begin_resync()
    side.asked()
    (leave,) = side.take(Follow(1, 7, 0, 0))
    assert isinstance(leave.message, Leave) and not side.backup.attached


@pytest.mark.parametrize(("keep", "taken"), [(0, False), (1, True), (3, True), (4, False)])
def test_a_log_is_cut_behind_what_is_applied_and_not_behind_its_end(keep: int, taken: bool) -> None:
    side = Side().following()
    for frame in FRAMES:
        side.take(Entries(1, 7, 0, frame.data))
    side.backup.written(3)
    side.take(Commit(1, 7, 1))
    side.backup.detach(retry_at_once=True)
    side.tick(session=8)
    said = side.take(Follow(1, 8, keep, 0))
    assert side.backup.attached == taken
    assert said == [Truncate(keep, Acknowledge("a", 1, 8, keep))] if taken else isinstance(said[0].message, Leave)
    assert side.replica.tail == Position(1, keep if taken else 3)


def test_a_page_reaches_up_to_where_it_says() -> None:
    """What is here at its last offset and not on the page is surplus; what is behind belongs to the next page."""
    side = Side()
    side.replica.contents.queues.add(1)
    for offset in (4, 5, 6):
        side.replica.contents.queues.insert(1, offset, 1000 + offset, text("m"))
    side.asked().take(ResyncBegin(1, 7, [], Position(1, 9)))
    side.take(QueueSnapshot(1, 7, 1, -1, 5, [(4, 1004)]))
    assert side.replica.contents.messages.ids(1) == [(4, 1004), (6, 1006)]


def test_what_is_not_on_its_own_disk_is_not_due() -> None:
    """Nor could it be applied, and the loop would turn and turn until it is there."""
    side = Side().following()
    for sequence in range(1, 4):
        side.take(Entries(1, 7, 0, encode_frame(1, sequence, [Delivered(1, sequence)], 0).data))
    side.backup.written(1)
    side.take(Commit(1, 7, 3))
    assert side.replica.applied.sequence == 1 and not side.backup.due
    side.backup.written(3)
    assert side.replica.applied.sequence == 3 and not side.backup.due
