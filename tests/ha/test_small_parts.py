"""Parts of a node, each by itself, to the byte and to the moment: sizes, backlog, checkpoints, recent frames."""

from __future__ import annotations

from typing import Any

import pytest

from ha.apply.checkpointing import LAYERS, Checkpointing, behind
from ha.catchup.throttle import Throttle
from ha.effects import Acknowledge, WriteCheckpoint
from ha.feed.recent_frames import RecentFrames
from ha.messages.sizes import ENTRY, OVERHEAD, event_bytes, message_bytes, slices
from ha.primary.backlog import EVENT_OVERHEAD, Backlog
from ha.settings import Settings
from txobserver.events import (
    Configure,
    Event,
    Message,
    Publish,
    Purge,
    Removal,
    Settle,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxToken,
)
from txobserver.frames import encode_frame

MESSAGE = Message("", "key", b"12345", b"1234567")
WEIGHT = 7 + 5 + 3 + OVERHEAD


class TestSizes:
    @pytest.mark.parametrize(
        ("event", "size"),
        [
            (Publish(7, (1, 2), MESSAGE), WEIGHT + 2 * ENTRY),
            (TxEnqueue(1, 7, (1, 2, 3), MESSAGE), WEIGHT + 3 * ENTRY),
            (TxDequeue(1, 2, [(1, 1), (2, 2)], Removal.ACKED), OVERHEAD + 2 * ENTRY),
            (Settle(1, [(1, 1), (2, 2), (3, 3)], Removal.ACKED), OVERHEAD + 3 * ENTRY),
            (Purge(1, 9, [1, 2]), OVERHEAD + 2 * ENTRY),
            (Configure(1, "declare queue", "name", b"arguments"), OVERHEAD + 4 + 9),
            (TxOpen(1), OVERHEAD),
        ],
    )
    def test_of_an_event(self, event: Event, size: int) -> None:
        assert event_bytes(event) == size

    def test_of_a_message(self) -> None:
        assert message_bytes(MESSAGE) == WEIGHT

    @pytest.mark.parametrize(
        ("sizes", "runs"),
        [
            ([], []),
            ([3, 4, 3], [[3, 4, 3]]),
            ([3, 4, 3, 1], [[3, 4, 3], [1]]),
            ([11], [[11]]),
            ([1, 11, 1], [[1], [11], [1]]),
            ([10, 10], [[10], [10]]),
            ([6, 5, 5, 1], [[6], [5, 5], [1]]),
        ],
    )
    def test_of_slices(self, sizes: list[int], runs: list[list[int]]) -> None:
        assert list(slices(sizes, lambda size: size, 10)) == runs


class TestBacklog:
    """It is full above its limit, until no more than half of that waits."""

    def test_of_what_is_gathered(self) -> None:
        backlog = Backlog(1000)
        backlog.gathered(300)
        backlog.gathered(100)
        assert backlog.gathered_bytes == 400 + 2 * EVENT_OVERHEAD
        backlog.settled(10)
        assert backlog.gathered_bytes == 400 + 2 * EVENT_OVERHEAD + 10 * ENTRY == 1000
        assert not backlog.full
        backlog.gathered(0)
        assert backlog.full

    def test_it_ends_at_the_half(self) -> None:
        backlog = Backlog(1000)
        for last, size in ((3, 501), (5, 500), (9, 1)):
            backlog.framed(last, size)
        assert backlog.full
        backlog.passed(2)
        assert backlog.full
        backlog.passed(4)
        assert backlog.full, "501 wait"
        backlog.passed(8)
        assert not backlog.full
        backlog.framed(20, 999)
        assert not backlog.full, "1000 wait"
        backlog.passed(20)
        backlog.framed(21, 1000)
        assert not backlog.full
        backlog.framed(22, 1)
        assert backlog.full
        backlog.passed(22)
        assert not backlog.full

    @pytest.mark.parametrize(
        ("size", "left", "waits"), [(900, 0, 900), (100, 0, 500), (100, 200, 500), (900, 200, 1100)]
    )
    def test_a_frame_weighs_no_less_than_what_it_was_made_of(self, size: int, left: int, waits: int) -> None:
        """What is left over for the next frame is counted there."""
        for limit in (waits, waits - 1):
            backlog = Backlog(limit)
            backlog.gathered(500 - EVENT_OVERHEAD)
            backlog.framed(3, size, left)
            assert backlog.gathered_bytes == left
            assert backlog.full == (limit < waits)


class Place:
    def __init__(self, sequence: int) -> None:
        self.sequence = sequence


class State:
    """As much of a replica as checkpoints look at."""

    def __init__(self) -> None:
        self.contents = self
        self.dirty_bytes = self.held_bytes = 0
        self.applied = Place(5)
        self.resyncing = self.in_parts = self.rests = False
        self.written = 0

    def checkpoint(self) -> Any:
        return ("checkpoint", self.applied.sequence)

    def checkpoint_written(self) -> None:
        self.written += 1


@pytest.mark.plain
class TestCheckpointing:
    SETTINGS = Settings(checkpoint_bytes=1000, checkpoint_every=5.0)

    def made(self) -> tuple[Any, Checkpointing, list[Any]]:
        state: Any = State()
        asked: list[Any] = []
        return state, Checkpointing(state, self.SETTINGS, asked.append), asked

    def test_it_is_due_after_so_long_if_something_has_changed(self) -> None:
        state, ours, asked = self.made()
        ours.tick(100.0)
        assert asked == [], "nothing has changed"
        state.applied = Place(6)
        ours.tick(100.0)
        assert asked == [WriteCheckpoint(("checkpoint", 6), None)]  # type: ignore[arg-type]
        state.applied = Place(7)
        ours.tick(106.0)
        assert len(asked) == 1, "one at a time"
        ours.written()
        assert state.written == 1
        ours.tick(104.9)
        assert len(asked) == 1
        ours.tick(105.0)
        assert len(asked) == 2
        ours.written()
        ours.tick(120.0)
        assert len(asked) == 2

    def test_the_first_is_due_when_so_much_time_has_passed_since_the_clock_began(self) -> None:
        state, ours, asked = self.made()
        state.applied = Place(6)
        ours.tick(4.9)
        assert asked == []
        ours.tick(5.0)
        assert len(asked) == 1

    def test_or_after_so_many_bytes_or_in_a_copy(self) -> None:
        state, ours, asked = self.made()
        state.applied = Place(6)
        ours.tick(100.0)
        ours.written()
        state.applied, state.dirty_bytes = Place(7), 999
        ours.tick(100.1)
        assert len(asked) == 1
        state.dirty_bytes = 1000
        ours.tick(100.1)
        assert len(asked) == 2
        ours.written()
        state.resyncing = True
        ours.tick(100.2)
        assert len(asked) == 3, "a copy changes the state without a position"

    def test_one_that_is_demanded_waits_for_the_one_on_its_way_and_no_other(self) -> None:
        _, ours, asked = self.made()
        first, second = Acknowledge("a", 1, 1, 1), Acknowledge("a", 1, 1, 2)
        ours.demand(first)
        ours.demand(second)
        assert [each.then for each in asked] == [first]
        ours.written()
        ours.written()
        assert [each.then for each in asked] == [first, second]
        ours.tick(200.0)
        assert len(asked) == 2, "nothing has changed since"

    def test_one_that_is_demanded_in_the_middle_of_a_decision_waits_for_its_end(self) -> None:
        """``demanded_in_the_middle_of_a_decision``: at once, or when the one on its way is written. The next decision
        waits for it."""
        state, ours, asked = self.made()
        first, second = Acknowledge("a", 1, 1, 1), Acknowledge("a", 1, 1, 2)
        for then in (first, second):
            state.in_parts = True
            ours.demand(then)
            ours.tick(100.0)
            assert state.rests and asked[-1:] != [WriteCheckpoint(("checkpoint", 5), then)]  # type: ignore[arg-type]
            state.in_parts = False
            ours.tick(100.0)
            assert asked[-1].then == then and not state.rests
            ours.demand(then)
            state.in_parts = True
            ours.written()
            assert len(asked) % 2 == 1 and state.rests
            state.in_parts = False
            ours.tick(100.0)
            assert len(asked) % 2 == 0
            ours.written()

    @pytest.mark.parametrize(("held", "late"), [(LAYERS * 1000, False), (LAYERS * 1000 + 1, True)])
    def test_when_they_are_behind(self, held: int, late: bool) -> None:
        state, _, _ = self.made()
        state.held_bytes = held
        assert behind(state, self.SETTINGS) == late


def test_recent_frames_of_any_size_are_kept_up_to_the_limit_and_no_further() -> None:
    frames = [encode_frame(1, n, [TxToken(1, b"t" * size)], 0) for n, size in enumerate((40, 1, 9, 64, 1, 1, 30), 1)]
    limit = sum(len(frame.data) for frame in frames[-3:])
    recent = RecentFrames(limit)
    for number, frame in enumerate(frames, 1):
        recent.add(frame)
        kept = [each for each in frames[:number] if recent.starting_at(each.first) is each]
        assert kept == frames[number - len(kept) : number], "the newest ones"
        assert sum(len(each.data) for each in kept) <= limit
        one_more = frames[: number - len(kept)][-1:]
        assert not one_more or sum(len(each.data) for each in one_more + kept) > limit


def test_nobody_rests_before_it_has_worked_whatever_the_clock_says() -> None:
    assert not Throttle().resting(0.0) and not Throttle().working


def test_recent_frames_are_found_by_their_first_event_and_bounded_by_bytes() -> None:
    frames = [encode_frame(1, first, [TxOpen(1), TxOpen(2)], 0) for first in range(1, 20, 2)]
    size = len(frames[0].data)
    recent = RecentFrames(3 * size)
    assert recent.starting_at(1) is None
    for frame in frames[:3]:
        recent.add(frame)
    assert [recent.starting_at(at) for at in range(8)] == [
        None,
        frames[0],
        None,
        frames[1],
        None,
        frames[2],
        None,
        None,
    ]
    recent.add(frames[3])
    assert recent.starting_at(1) is None and recent.starting_at(3) is frames[1] and recent.starting_at(7) is frames[3]
    small = RecentFrames(1)
    small.add(frames[0])
    assert small.starting_at(1) is frames[0], "the newest is kept in any case"
    small.add(frames[1])
    assert small.starting_at(1) is None and small.starting_at(3) is frames[1]
