"""How much the stream may run ahead of a joiner that does not catch up by itself."""

from __future__ import annotations

from ha.catchup.backpressure import Backpressure


def test_the_stream_may_run_ahead_by_half_of_what_the_joiner_gets() -> None:
    backpressure = Backpressure(100, 1000)
    assert not backpressure.exceeded(100, 1100) and backpressure.exceeded(100, 1101)
    assert not backpressure.exceeded(300, 1200) and backpressure.exceeded(300, 1201)


def test_in_the_end_it_has_all() -> None:
    backpressure = Backpressure(100, 1000)
    assert not backpressure.exceeded(2100, 2100) and backpressure.exceeded(2100, 2101)
    assert not backpressure.exceeded(9000, 9000) and backpressure.exceeded(9000, 9001)
    reached, tail = 100, 1100
    while not (reached == tail or reached > 2200):
        reached += 1
        while not backpressure.exceeded(reached, tail + 1):
            tail += 1
    assert reached == tail <= 2101
