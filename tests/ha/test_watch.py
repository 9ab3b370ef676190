"""Which part of the time that has passed a primary holds against others (``ha.watch``)."""

from __future__ import annotations

from ha.settings import Settings
from ha.watch import Watch


def steps(*lengths: float, longest: float = 0.25) -> list[tuple[float, bool]]:
    """How much of each step counts, and whether others are judged in the tick that ends it."""
    watch, now, found = Watch(longest, 100.0), 100.0, []
    for length in lengths:
        now += length
        watch.tick(now)
        found.append((round(length - watch.passed_over, 6), not watch.unread))
    return found


def test_ordinary_steps_count() -> None:
    assert steps(0.02, 0.25, 0.1, 0.0) == [(0.02, True), (0.25, True), (0.1, True), (0.0, True)]


def test_the_tick_that_ends_a_long_step_judges_nobody_and_the_next_one_does() -> None:
    assert steps(0.26) == [(0.25, False)]
    assert steps(0.02, 40.0, 0.02) == [(0.02, True), (0.25, False), (0.02, True)]


def test_long_steps_in_turn_with_short_ones_count_each() -> None:
    """Were the long ones given back, as they once were, only the short ones would count."""
    assert steps(0.3, 0.02, 0.3, 0.02) == [(0.25, False), (0.02, True)] * 2


def test_of_long_steps_in_a_row_only_the_first_puts_the_verdict_off() -> None:
    """A node that is always so busy still takes out who is gone."""
    assert steps(0.3, 0.3, 40.0, 0.02, 0.3) == [(0.25, False), (0.25, True), (0.25, True), (0.02, True), (0.25, False)]


def test_no_step_counts_whole_in_which_everyone_may_have_spoken() -> None:
    """Also if a lease is much longer than the time after which a backup is silent."""
    assert Settings().longest_counted == Settings().longest_step == 0.25
    assert Settings(lease_ttl=10.0).longest_counted == 1.0 < Settings(lease_ttl=10.0).longest_step
    assert Settings(lease_ttl=10.0, prepare_timeout=0.3).longest_counted == 0.3 / 3
    assert Settings(lease_ttl=10.0, backup_timeout=0.3).longest_counted == 0.3 / 3
