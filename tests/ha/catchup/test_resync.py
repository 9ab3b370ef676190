"""The primary's end of a copy, queue by queue: what is sent when, and when it goes on (``ha.catchup.resync``)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ha.apply.applied import Applied
from ha.apply.replica import Replica
from ha.catchup.replicating_subscription import PAGE
from ha.catchup.resync import Resync
from ha.messages.copying import Missing, QueueChange, QueueContent, QueueSnapshot, ResyncBegin, SnapshotEnd
from tests.support.copying import KIB, PORTION, WINDOW
from txobserver.configuration import queue_step
from txobserver.events import Message, Publish, Removal
from txobserver.ports.store import MemoryBase

STEP = 0.01


class Copy:
    """The copy of a queue to a joiner. What it says of pages and of what it has taken comes as the test says."""

    def __init__(self, messages: int) -> None:
        base = MemoryBase()
        self.replica = Replica(base, *base.load())
        self.now = 100.0
        self.parts: list[Any] = []
        self._answered = 0
        self.replica.append(1, replace(queue_step("q", False, {}), config_id=1))
        self.listener = Applied()
        self.publish(messages)
        self.resync = Resync("b", 1, 7, self.replica, lambda effect: self.parts.append(effect.message), PORTION, WINDOW)
        self.listener = self.resync
        assert isinstance(self.parts.pop(), ResyncBegin)

    def publish(self, messages: int, size: int = 10) -> None:
        for _ in range(messages):
            number = self.replica.tail.sequence
            self.replica.append(1, Publish(number, (1,), Message("", "q", b"", bytes(size))))
        self.replica.apply(self.replica.tail.sequence, self.listener)

    def lacks(self, *offsets: int) -> None:
        self.resync.missing(Missing(1, 7, 1, list(offsets)), self.now)

    def answer(self) -> int:
        """The joiner asks for all of each new page, and takes each new part; how many parts that brings."""
        before = len(self.parts)
        for part in self.parts[self._answered :]:
            if isinstance(part, QueueSnapshot):
                self.lacks(*[offset for offset, _ in part.ids])
        self._answered = len(self.parts)
        self.resync.progress(self._answered, False, self.now)
        return len(self.parts) - before

    @property
    def pages(self) -> int:
        return sum(isinstance(part, QueueSnapshot) for part in self.parts)

    @property
    def ended(self) -> bool:
        return isinstance(self.parts[-1], SnapshotEnd)


def test_what_the_joiner_has_taken_makes_room_for_more_at_once() -> None:
    """No more than about a portion is on its way to it, and as soon as it has taken some the next part is sent."""
    copy = Copy(5 * PAGE)
    copy.resync.store_marked(copy.now)
    copy.lacks()
    copy.lacks()
    assert copy.pages == 2 and copy.resync.held > PORTION, "there is no room for a third page"
    page = copy.resync.held // 2
    copy.resync.progress(1, False, copy.now)
    assert copy.pages == 3 and copy.resync.held == 2 * page
    held = copy.resync.held
    copy.resync.progress(3, False, copy.now)
    assert copy.resync.held < held, "what it has taken is held no more"
    copy.resync.progress(1000, False, copy.now)
    assert copy.resync.held == 0, "nor can it have taken more than was sent"


def test_one_page_passes_over_what_has_gone_and_the_next_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without ids, one after the other in one turn, would hold the event loop as one page without bounds."""
    monkeypatch.setattr("txobserver.state.messages.IDS_PASSED", 50)
    copy = Copy(400)
    entries = copy.replica.contents.messages.ids(1)
    for offset, rid in entries[:-1]:
        copy.replica.contents.queues.remove(1, offset, rid)
    copy.resync.store_marked(copy.now)
    copy.lacks()
    for pages in range(1, 8):
        assert copy.pages == pages, "the next waits until the joiner has taken this one"
        copy.resync.progress(pages, False, copy.now)
    copy.lacks()
    assert copy.ended and [part.ids for part in copy.parts[:8]] == [[]] * 7 + [entries[-1:]]
    assert [part.after for part in copy.parts[1:8]] == [part.through for part in copy.parts[:7]]


def test_one_that_is_full_is_sent_nothing_until_it_has_room() -> None:
    copy = Copy(5 * PAGE)
    copy.resync.store_marked(copy.now)
    copy.resync.progress(1, True, copy.now)
    copy.lacks()
    copy.resync.removed(1, copy.parts[0].ids[:1], Removal.ACKED)
    copy.resync.go_on(copy.now)
    assert len(copy.parts) == 1
    copy.resync.progress(1, False, copy.now)
    assert [type(part) for part in copy.parts[1:]] == [QueueChange, QueueSnapshot]


def test_only_what_was_there_at_the_beginning_is_followed_by_rests() -> None:
    """Rests for what came later would let others, who publish meanwhile, keep the joiner away for ever."""
    copy = Copy(PAGE - 1)
    copy.publish(40, 3 * KIB)
    copy.resync.store_marked(copy.now)
    brought = []
    while copy.pages < 2 and len(brought) < 100:
        copy.now += STEP
        brought.append(copy.answer())
    assert brought.count(0) >= 3 and copy.pages == 2, "several portions, with a rest after each"
    brought.clear()
    while not copy.ended:
        copy.now += STEP
        brought.append(copy.answer())
        assert brought[-1] > 0, "no rest any more"
    contents = [part for part in copy.parts if isinstance(part, QueueContent)]
    assert len(brought) >= 4 and sum(len(part.entries) for part in contents) == PAGE + 39
