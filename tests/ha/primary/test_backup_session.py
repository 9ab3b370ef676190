"""The primary's end of an attachment: what is sent when, what is owed, and how long (``ha.primary.backup_session``)."""

from __future__ import annotations

import pytest

from ha.catchup.join_guard import JoinGuard
from ha.effects import ReadLog, Send
from ha.feed.recent_frames import RecentFrames
from ha.messages.stream import Commit, Entries
from ha.primary.backup_session import BackupSession
from ha.settings import Settings
from txobserver.events import TxOpen
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Member

FRAMES = [encode_frame(1, sequence, [TxOpen(sequence)], 0) for sequence in range(1, 9)]
SIZE = len(FRAMES[0].data)
AWAITED = Settings(window_bytes=2 * SIZE, portion_bytes=SIZE)


def asked(keep: int = 0) -> BackupSession:
    return BackupSession(Member("b", "b1"), 7, 1, keep, JoinGuard(keep), 100.0)


def session(keep: int = 0) -> BackupSession:
    """Of one that has answered."""
    ours = asked(keep)
    ours.heard(100.0)
    return ours


def recent(frames: list[Frame]) -> RecentFrames:
    found = RecentFrames(1 << 20)
    for frame in frames:
        found.add(frame)
    return found


def sequences(effects: list[object], commit: int) -> list[int]:
    found = []
    for effect in effects:
        assert isinstance(effect, Send) and isinstance(effect.message, Entries) and effect.peer == "b"
        assert (effect.message.generation, effect.message.session, effect.message.commit) == (1, 7, commit)
        found += [frame.first for frame in FRAMES if frame.data == effect.message.frame]
    return found


def test_nothing_is_owed_until_the_timeout_has_passed() -> None:
    ours = asked(keep=4)
    assert not ours.owes_since(4, 103.0, 3.0) and ours.owes_since(4, 103.001, 3.0), "the word that it is attached"
    ours.acknowledge(4, 104.0)
    assert not ours.owes_since(4, 150.0, 3.0), "all is there"
    assert not ours.owes_since(5, 153.0, 3.0) and ours.owes_since(5, 153.001, 3.0)
    ours.acknowledge(5, 154.0)
    assert not ours.owes_since(6, 157.0, 3.0) and ours.owes_since(6, 157.001, 3.0)
    ours.acknowledge(5, 158.0)
    assert ours.owes_since(6, 157.001, 3.0), "the same once more is no progress"


def test_time_that_is_passed_over_is_not_owed_and_what_was_heard_since_is_owed_from_then_on() -> None:
    ours = asked(keep=4)
    ours.pass_over(4.0, 105.0)
    assert not ours.owes_since(5, 107.0, 3.0) and ours.owes_since(5, 107.001, 3.0)
    ours.acknowledge(5, 108.0)
    ours.pass_over(4.0, 108.5)
    assert not ours.owes_since(6, 111.5, 3.0) and ours.owes_since(6, 111.501, 3.0)


def test_one_that_copies_or_is_full_owes_nothing_unless_it_counts() -> None:
    ours = asked(keep=4)
    ours.progress(0, False, False, 102.0)
    assert ours.owes_since(5, 103.5, 3.0), "it is alive, and no more"
    ours.progress(0, True, False, 104.0)
    assert ours.full and not ours.owes_since(5, 107.0, 3.0)
    ours.progress(0, False, False, 106.0)
    assert not ours.full and not ours.owes_since(5, 109.0, 3.0), "it was full until now"
    ours.progress(0, True, True, 109.0)
    assert ours.owes_since(5, 109.5, 3.0), "the commits wait for it"
    ours.acknowledge(5, 110.0)
    assert not ours.owes_since(5, 113.0, 3.0) and ours.owes_since(5, 113.001, 3.0), "it owes room"


def test_one_that_has_not_answered_is_sent_nothing_of_the_stream() -> None:
    """``asks_again_behind_a_large_message``."""
    ours, frames = asked(), recent(FRAMES)
    assert not ours.pump(frames, 8, 3, AWAITED, 100.0, True)
    assert ours.tell_commit(3, 100.0, AWAITED), "its attachment stands"
    ours.acknowledge(0, 100.1)
    assert sequences(ours.pump(frames, 8, 3, AWAITED, 100.1, True), 3) == [1, 2]


def test_what_is_in_flight_is_bounded_by_the_window() -> None:
    ours, frames = session(), recent(FRAMES)
    assert sequences(ours.pump(frames, 8, 3, AWAITED, 100.0, True), 3) == [1, 2]
    assert (ours.sent, ours.lag_bytes) == (2, 2 * SIZE)
    assert not ours.pump(frames, 8, 3, AWAITED, 100.0, True)
    ours.acknowledge(1, 100.0)
    assert ours.lag_bytes == SIZE
    assert sequences(ours.pump(frames, 8, 4, AWAITED, 100.0, True), 4) == [3]
    ours.acknowledge(3, 100.0)
    assert ours.lag_bytes == 0
    assert sequences(ours.pump(frames, 4, 4, AWAITED, 100.0, True), 4) == [4], "persist, then send"
    assert ours.sent == 4 and not ours.pump(frames, 4, 4, AWAITED, 100.0, True)


def test_one_that_is_full_is_sent_nothing() -> None:
    ours, frames = session(), recent(FRAMES)
    ours.progress(0, True, False, 100.0)
    assert not ours.pump(frames, 8, 0, AWAITED, 100.0, True)
    ours.progress(0, False, False, 100.0)
    assert ours.pump(frames, 8, 0, AWAITED, 100.0, True)


def test_what_is_no_longer_in_memory_is_read_from_the_log_once() -> None:
    ours, frames = session(), recent(FRAMES[4:])
    assert ours.pump(frames, 8, 0, AWAITED, 100.0, True) == [ReadLog("b", 7, 1, 2 * SIZE)]
    assert not ours.pump(frames, 8, 0, AWAITED, 100.0, True), "it is being read"
    assert sequences(ours.log_read([FRAMES[0], FRAMES[1]], 0), 0) == [1, 2]
    assert not ours.log_read([FRAMES[0]], 0), "it has that"
    ours.acknowledge(2, 100.0)
    assert ours.pump(frames, 8, 0, AWAITED, 100.0, True) == [ReadLog("b", 7, 3, 2 * SIZE)]


def test_one_that_nobody_waits_for_is_sent_a_portion_and_rests() -> None:
    ours, frames = session(), recent(FRAMES)
    assert sequences(ours.pump(frames, 8, 0, AWAITED, 100.0, False), 0) == [1]
    assert not ours.pump(frames, 8, 0, AWAITED, 100.05, False), "its portion has not arrived"
    ours.acknowledge(1, 100.1)
    assert not ours.pump(frames, 8, 0, AWAITED, 100.1, False), "it rests for twice as long as that took"
    assert not ours.pump(frames, 8, 0, AWAITED, 100.29, False)
    assert sequences(ours.pump(frames, 8, 0, AWAITED, 100.31, False), 0) == [2]
    ours.acknowledge(2, 100.4)
    assert not ours.pump(frames, 2, 0, AWAITED, 102.0, False), "there is no more"


class Paced:
    """A throttle that never rests, and notes each portion that it is given."""

    def __init__(self) -> None:
        self.working = False
        self.told: list[tuple[float, int, int]] = []

    def begin(self, now: float) -> None:
        self.working = True

    def end(self, now: float, portion: int, lag: int) -> None:
        self.working = False
        self.told.append((now, portion, lag))

    def resting(self, now: float) -> bool:
        return False


@pytest.mark.plain
def test_its_pace_is_told_what_has_arrived_and_what_is_still_lacking() -> None:
    ours, frames, throttle = session(keep=1), recent(FRAMES), Paced()
    ours._throttle = throttle  # type: ignore[assignment]
    by_two = Settings(window_bytes=8 * SIZE, portion_bytes=2 * SIZE)
    assert sequences(ours.pump(frames, 2, 0, by_two, 100.0, False), 0) == [2]
    assert sequences(ours.pump(frames, 8, 0, by_two, 100.1, False), 0) == [3], "the rest of the portion"
    assert not ours.pump(frames, 8, 0, by_two, 100.2, False) and throttle.told == []
    ours.acknowledge(2, 100.3)
    assert not ours.pump(frames, 8, 0, by_two, 100.3, False) and throttle.told == [], "one is on its way"
    ours.acknowledge(3, 100.4)
    assert sequences(ours.pump(frames, 8, 0, by_two, 100.4, False), 0) == [4, 5]
    assert throttle.told == [(100.4, 2, 5)]
    ours.acknowledge(5, 100.5)
    assert not ours.pump(frames, 5, 0, by_two, 100.5, False)
    assert throttle.told == [(100.4, 2, 5), (100.5, 2, 0)] and not throttle.working, "there is no more"
    ours.acknowledge(5, 100.6)
    assert sequences(ours.pump(frames, 8, 0, by_two, 100.6, False), 0) == [6, 7]
    assert len(throttle.told) == 2


@pytest.mark.plain
def test_a_portion_that_is_read_from_the_log_has_not_arrived() -> None:
    ours, frames, throttle = session(), recent(FRAMES[1:]), Paced()
    ours._throttle = throttle  # type: ignore[assignment]
    by_one = Settings(window_bytes=8 * SIZE, portion_bytes=SIZE)
    assert ours.pump(frames, 8, 0, by_one, 100.0, False) == [ReadLog("b", 7, 1, SIZE)]
    ours._portion_bytes = SIZE
    assert not ours.pump(frames, 8, 0, by_one, 100.1, False) and throttle.told == []
    ours.log_read(FRAMES[:1], 0)
    ours.acknowledge(1, 100.2)
    assert sequences(ours.pump(frames, 8, 0, by_one, 100.2, False), 0) == [2]
    assert throttle.told == [(100.2, 1, 7)]


def told(effects: list[object]) -> list[tuple[str, int]]:
    found = []
    for effect in effects:
        assert isinstance(effect, Send) and isinstance(effect.message, Commit)
        found.append((effect.peer, effect.message.commit))
    return found


def test_the_commit_point_is_told_once_and_then_as_a_heartbeat() -> None:
    ours, beats = session(), Settings(heartbeat_every=1.0)
    assert told(ours.tell_commit(0, 100.9, beats)) == [], "there is nothing new, and it attached a moment ago"
    assert told(ours.tell_commit(3, 100.9, beats)) == [("b", 3)]
    assert told(ours.tell_commit(3, 101.8, beats)) == []
    assert told(ours.tell_commit(2, 101.9, beats)) == [("b", 2)], "a heartbeat"
    assert told(ours.tell_commit(3, 102.0, beats)) == [], "that has been told"
    assert told(ours.tell_commit(4, 102.0, beats)) == [("b", 4)]
    ours.pump(recent(FRAMES), 8, 6, AWAITED, 102.0, True)
    assert told(ours.tell_commit(6, 102.1, beats)) == [], "the entries have carried it"
    assert told(ours.tell_commit(7, 102.1, beats)) == [("b", 7)]


def test_the_stream_follows_a_snapshot() -> None:
    ours, frames = session(), recent(FRAMES)
    ours.stream_from(5, JoinGuard(7), 100.0)
    assert ours.had == 5
    assert (ours.acknowledged, ours.sent, ours.past_guard) == (5, 5, False)
    assert sequences(ours.pump(frames, 8, 0, AWAITED, 100.0, True), 0) == [6, 7]
    ours.acknowledge(7, 100.0)
    assert ours.past_guard
