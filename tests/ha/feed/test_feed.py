"""What a feed gives, keeps and forgets: frames up to the commit point, in bounded memory, by a cursor."""

from __future__ import annotations

from typing import Any

import pytest

from ha.effects import Persist, ResetLog, Truncate, WriteCheckpoint
from ha.feed.feed import BEGINNING, Feed, OnDisk, Parted, Passed, up_to
from txobserver.events import Event, TxOpen
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Position

pytestmark = pytest.mark.plain  # the replica is a double


class Stream:
    """A replica, as far as a feed asks for it: what has passed, and where generations began."""

    def __init__(self, commit: int = 0, *starts: tuple[int, int]) -> None:
        self.commit = commit
        self.starts = [Position(*start) for start in starts or ((1, 1),)]

    @property
    def applied(self) -> Position:
        return self.position_of(self.commit)

    def position_of(self, sequence: int) -> Position:
        return Position(max((s.generation for s in self.starts if s.sequence <= sequence), default=0), sequence)


def frame(first: int, count: int = 3, generation: int = 1) -> Frame:
    events: list[Event] = [TxOpen(1000 + sequence) for sequence in range(first, first + count)]
    return encode_frame(generation, first, events, 7)


FRAMES = [frame(first) for first in range(1, 30, 3)]
SIZE = len(FRAMES[0].data)


def fed(stream: Any, limit: int = 1 << 20, frames: list[Frame] = FRAMES) -> Feed:
    feed = Feed(stream, limit)
    for each in frames:
        feed.changes(Persist(each))
    return feed


def events(found: Any) -> list[int]:
    """The transactions of the events, which say their sequences."""
    assert isinstance(found, Passed), found
    return [event.tx - 1000 for each in found.frames for event in each.events()]  # type: ignore[union-attr]


def test_nothing_behind_the_commit_point_is_given() -> None:
    stream = Stream()
    feed = fed(stream)
    for stream.commit in range(31):
        found = feed.read(BEGINNING, 1 << 20)
        assert events(found) == list(range(1, stream.commit + 1)) and feed.commit == stream.commit
        assert found.after == (Position(1, stream.commit) if stream.commit else BEGINNING)  # type: ignore[union-attr]
        assert feed.read(found.after, 1) == Passed([], found.after), "there is no more"  # type: ignore[union-attr]


def test_a_portion_has_as_much_as_was_asked_for_and_one_frame_at_least() -> None:
    feed = fed(Stream(30))
    for size, frames in ((1, 1), (SIZE, 1), (SIZE + 1, 2), (3 * SIZE, 3), (1 << 20, 10)):
        assert feed.read(BEGINNING, size) == Passed(FRAMES[:frames], FRAMES[frames - 1].position)
    assert feed.read(BEGINNING, 1 << 20, 4) == Passed(FRAMES[:2], Position(1, 6)), "the frame that holds the last one"
    assert feed.read(Position(1, 4), 1) == Passed([FRAMES[1]], Position(1, 6)), "and the one that holds the next one"
    assert feed.read(Position(1, 6), 1, 6) == Passed([], Position(1, 6))


def test_any_reader_gets_everything_once_whatever_its_portions() -> None:
    stream = Stream()
    feed = fed(stream)
    for size in (1, SIZE, 2 * SIZE + 1):
        after, seen = BEGINNING, list[int]()
        for stream.commit in (0, 2, 2, 3, 11, 17, 30):
            while (found := feed.read(after, size)) and isinstance(found, Passed) and found.frames:
                seen += [each for each in events(found) if each > after.sequence]
                after = found.after
        assert seen == list(range(1, 31))


def test_memory_is_bounded_and_what_is_older_is_on_disk() -> None:
    feed = fed(Stream(30), 3 * SIZE)
    kept: Any = feed._recent
    assert [each.first for each in kept._frames] == [22, 25, 28] and kept._bytes == 3 * SIZE
    assert feed.read(Position(1, 21), 1) == Passed([FRAMES[7]], Position(1, 24))
    assert feed.read(Position(1, 20), 1) == OnDisk(21, 30)
    assert feed.read(Position(1, 3), 1, 9) == OnDisk(4, 9)
    assert fed(Stream(30), frames=[]).read(BEGINNING, 1) == OnDisk(1, 30), "a node that has just started"
    assert up_to(FRAMES[0], 2) == frame(1, 2) and up_to(FRAMES[0], 3) is FRAMES[0]


def test_of_frames_that_are_larger_than_the_bound_one_is_kept() -> None:
    kept: Any = fed(Stream(30), 1)._recent
    assert list(kept._frames) == FRAMES[-1:] and kept._bytes == SIZE


def test_what_is_cut_off_is_never_given() -> None:
    """Another event gets its sequence."""
    stream = Stream(8)
    feed = fed(stream, frames=FRAMES[:4])
    feed.changes(Truncate(8))
    stream.starts.append(Position(2, 9))
    other = frame(9, 4, generation=2)
    feed.changes(Persist(other))
    stream.commit = 12
    assert feed.read(Position(1, 6), 1 << 20) == Passed([frame(7, 2), other], Position(2, 12))
    kept: Any = feed._recent
    assert kept._bytes == sum(len(each.data) for each in kept._frames)


def test_a_log_that_begins_anew_is_all_that_there_is() -> None:
    feed = fed(Stream(30))
    checkpoint: Any = None
    feed.changes(WriteCheckpoint(checkpoint))
    assert events(feed.read(Position(1, 27), 1)) == [28, 29, 30]
    feed.changes(ResetLog(41, ()))
    assert feed.read(Position(1, 27), 1) == OnDisk(28, 30)
    gap = Stream(50)
    behind = fed(gap)
    behind.changes(Persist(frame(41)))
    assert behind.read(Position(1, 27), 1) == OnDisk(28, 50), "a gap: what stood before it is not given as if it led on"
    assert events(behind.read(Position(1, 40), 1)) == [41, 42, 43]


HISTORY = ((1, 1), (3, 11), (6, 21))
"""Generations 1, 3 and 6, which began there"""


@pytest.mark.parametrize(
    ("commit", "cursor", "here"),
    [
        (25, (1, 10), None),
        (25, (3, 11), None),
        (25, (3, 20), None),
        (25, (6, 25), None),
        (25, (6, 90), None),  # this node knows of less than another one
        (25, (7, 26), None),  # of a generation that has not come here
        (25, (1, 11), 3),
        (25, (3, 10), 1),
        (25, (3, 21), 6),
        (25, (5, 26), 6),  # generation 5 was given up: 6 begins before its end
        (25, (7, 25), 6),  # and so it is of one that is later, and behind: what has passed here is another event
        (18, (1, 19), 3),
        (18, (3, 19), None),
        (18, (6, 21), None),
        (18, (2, 90), 3),
        (0, (1, 1), None),
        (25, (0, 13), None),  # who says no generation is compared with none
    ],
)
def test_a_cursor_is_good_where_its_generation_stands(commit: int, cursor: tuple[int, int], here: int | None) -> None:
    feed, after = fed(Stream(commit, *HISTORY), frames=[]), Position(*cursor)
    assert feed.parted(after) == here
    found = feed.read(after, 1)
    if here is not None:
        assert found == Parted(here)
    else:
        assert found == (OnDisk(after.sequence + 1, commit) if after.sequence < commit else Passed([], after))


def test_who_watches_is_told_once_in_each_turn_in_which_something_has_passed() -> None:
    stream, told = Stream(5), list[str]()
    feed = Feed(stream, 1)  # type: ignore[arg-type]
    end = feed.watch(lambda: told.append("a"))
    feed.watch(lambda: told.append("b"))
    feed.tell()
    assert told == []
    stream.commit = 9
    feed.tell()
    feed.tell()
    assert told == ["a", "b"]
    end()
    end()
    stream.commit = 4  # a loss was accepted, and a copy of the queues has ended
    feed.tell()
    assert told == ["a", "b", "b"]


def test_who_ends_watching_while_it_is_told_keeps_no_other_from_it() -> None:
    stream, told = Stream(), list[str]()
    feed = Feed(stream, 1)  # type: ignore[arg-type]

    def once() -> None:
        told.append("once")
        end()

    end = feed.watch(once)
    feed.watch(lambda: told.append("always"))
    for stream.commit in (1, 2):
        feed.tell()
    assert told == ["once", "always", "always"]


def test_copy_ends_where_the_lost_history_did() -> None:
    """An operator accepted the loss of events 8 to 12, and the copy that took their place ends at 12, too."""
    stream = Stream(12)
    feed = fed(stream)
    told: list[Any] = []
    feed.watch(lambda: told.append(feed.read(Position(1, 12), 1 << 20)))
    feed.tell()
    assert told == []
    stream.starts.append(Position(2, 8))
    feed.tell()
    assert told == [Parted(2)]
    feed.tell()
    assert len(told) == 1
