"""How fast a joiner gets on."""

from __future__ import annotations

import pytest

from ha.catchup.catch_up_rate import SHORTEST, CatchUpRate


def test_what_it_gets_if_it_goes_on_so() -> None:
    rate = CatchUpRate(100.0)
    assert rate.gets_in(0.5, 101.0) == 0.0, "nothing is known of it"
    for _ in range(4):
        rate.got(1000)
    assert rate.gets_in(0.5, 102.0) == 1000.0
    assert rate.gets_in(0.5, 100.0) == pytest.approx(4000 / SHORTEST / 2)


def test_the_longest_time_without_progress() -> None:
    rate = CatchUpRate(100.0)
    for seconds in (0.2, 1.5, 0.1):
        rate.waited(seconds)
    assert rate.slowest == 1.5
