"""What one frame and one event hold at most, so that no turn encodes or applies too much (``ha.primary.writer``)."""

from __future__ import annotations

import pytest

from ha.apply.replica import Replica
from ha.effects import Effect, Persist
from ha.messages.sizes import SETTLED, event_work
from ha.primary.writer import Writer
from ha.settings import Settings
from tests.support.messages import TEXT
from txobserver.events import Event, GenerationStart, Message, Removal, Settle, TxDequeue, TxEnqueue, TxOpen
from txobserver.frames import Frame
from txobserver.ports.store import MemoryBase, Meta

pytestmark = pytest.mark.plain


class Taken:
    """A fanout that keeps what it gets."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def take(self, frame: Frame) -> None:
        self.frames.append(frame)


def framed(*events: Event) -> tuple[list[list[Event]], Writer]:
    """The frames that these events make, in so many turns as it takes."""
    replica, effects, fanout = Replica(MemoryBase(), Meta(), {}), list[Effect](), Taken()
    writer = Writer(1, replica, Settings(), effects.append, fanout)  # type: ignore[arg-type]
    for event in (GenerationStart(1, "a", ["a"]), TxOpen(7), *events):
        writer.append(event)
    while writer.due:
        writer.flush()
        replica.durable = replica.tail.sequence if not writer._group else writer._framed
    assert [type(each) for each in effects] == [Persist] * len(fanout.frames) and not writer.backlog.gathered_bytes
    return [frame.events() for frame in fanout.frames], writer


def small(number: int) -> Event:
    return TxEnqueue(7, 1000 + number, (2,), TEXT)


def acknowledgement(number: int) -> Event:
    return TxDequeue(7, 1, [(entry, entry) for entry in range(1000 * number, 1000 * number + 1000)], 1)


@pytest.mark.parametrize(("make", "count", "most"), [(small, 12_000, 6000), (acknowledgement, 80, 15)])
def test_a_frame_holds_so_many_small_things(make: object, count: int, most: int) -> None:
    """``a_frame_of_forty_thousand_events``: a backup takes it in one turn, which was 40 ms."""
    frames, _ = framed(*[make(number) for number in range(count)])  # type: ignore[operator]
    assert sum(map(len, frames)) == count + 2 and len(frames) > 2
    assert all(len(each) <= most for each in frames) and all(len(each) > most // 2 for each in frames[:-1])


def test_a_frame_of_large_messages_is_filled_by_their_bytes() -> None:
    body = Message("", "q", b"", bytes(1 << 18))
    frames, _ = framed(*[TxEnqueue(7, number, (2,), body) for number in range(1000, 1016)])
    assert [len(each) for each in frames] == [9, 7, 2]


def test_what_a_group_counts_for_is_known_without_a_look_at_its_events() -> None:
    """Its frame would have to be weighed event by event otherwise, in each turn."""
    replica = Replica(MemoryBase(), Meta(), {})
    writer = Writer(1, replica, Settings(frame_bytes=20_000), lambda effect: None, Taken())  # type: ignore[arg-type]
    for event in (TxOpen(7), *[small(number) for number in range(100)], acknowledgement(0)):
        writer.append(event)
    for number in range(3):
        writer.settle(1, [(number, number)], Removal.ACKED)
    turns = 0
    while writer._group:
        assert writer._work() == sum(event_work(each) for each in writer._group)
        writer.flush()
        turns += 1
    assert turns > 3 and writer._work() == 0


def test_what_is_left_of_a_group_is_counted_as_before() -> None:
    """Until it has passed the commit point it waits, and clients are not read if too much does."""
    replica = Replica(MemoryBase(), Meta(), {})
    writer = Writer(1, replica, Settings(), lambda effect: None, Taken())  # type: ignore[arg-type]
    for event in (TxOpen(7), *[small(number) for number in range(12_000)]):
        writer.append(event)
    whole = writer.backlog.gathered_bytes
    writer.flush()
    left = len(writer._group)
    assert 0 < left < 12_000
    assert writer.backlog.gathered_bytes == pytest.approx(whole * left / 12_000, rel=0.001)


def test_an_event_settles_a_thousand_messages() -> None:
    """``a_settlement_of_ten_thousand_in_one_turn``"""
    replica = Replica(MemoryBase(), Meta(), {})
    writer = Writer(1, replica, Settings(), lambda effect: None, Taken())  # type: ignore[arg-type]
    entries = [(offset, offset) for offset in range(2500)]
    writer.settle(1, entries, Removal.ACKED)
    writer.settle(1, entries[:500], Removal.ACKED)
    settled = [event.entries for event in writer._group if isinstance(event, Settle)]
    assert [len(each) for each in settled] == [SETTLED, SETTLED, 1000] and SETTLED == 1000
