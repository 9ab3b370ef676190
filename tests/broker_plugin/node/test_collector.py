"""Python's collector looks at what is new in each tick (``broker_plugin.node.collector``)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from broker_plugin.node.collector import GC_THRESHOLDS, NEW, Collector


class Timer:
    """What a guard's loop would call later."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.cancelled = False

    def call_later(self, seconds: float, call: Any) -> Timer:
        self.due.append(call)
        return self

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def undone() -> Iterator[None]:
    """The collector of this process works as before in the end."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_it_looks_in_each_tick_until_it_is_stopped(undone: None) -> None:
    timer, looks = Timer(), list[int]()
    collector = Collector(timer, looks.append)  # type: ignore[arg-type]
    collector.start()
    timer.due.pop()()
    assert looks == [NEW, NEW] and gc.get_threshold() == GC_THRESHOLDS and gc.get_freeze_count()
    collector.stop()
    assert timer.cancelled


def test_objects_that_take_the_place_of_others_do_not_pile_up(undone: None) -> None:
    """``a_look_at_three_hundred_thousand_new_objects``: 100 ms. The collector counts none of these by itself, since as
    many are freed as are made; ``ack`` of all that a channel holds in a transaction does that."""
    timer = Timer()
    Collector(timer).start()  # type: ignore[arg-type]
    held: list[Any] = [[number] for number in range(60_000)]
    timer.due.pop()()
    found = []
    for first in range(0, len(held), 5000):
        for number in range(first, first + 5000):
            held[number] = [held[number]]
        found.append(len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1)))
        timer.due.pop()()
    assert max(found) < 3 * 5000
