"""Which part of the time that has passed a primary holds against others (``ha.watch``)."""

from __future__ import annotations

from ha.settings import Settings
from ha.watch import Watch


def counted(*steps: float, longest: float = 0.25) -> list[float]:
    """How much of each step counts."""
    watch, now, found = Watch(longest, 100.0), 100.0, []
    for step in steps:
        now += step
        found.append(round(step - watch.passed_over(now), 6))
    return found


def test_ordinary_steps_count() -> None:
    assert counted(0.02, 0.25, 0.1, 0.0) == [0.02, 0.25, 0.1, 0.0]


def test_a_long_step_does_not_count() -> None:
    assert counted(0.26) == [0.0]
    assert counted(0.02, 40.0, 0.02, 0.3, 0.02) == [0.02, 0.0, 0.02, 0.0, 0.02]


def test_of_long_steps_in_a_row_each_but_the_first_counts_as_a_step_of_the_longest_length() -> None:
    """A node that is always so busy still takes out who is gone."""
    assert counted(0.3, 0.3, 40.0, 0.02, 0.3) == [0.0, 0.25, 0.25, 0.02, 0.0]


def test_no_step_counts_whole_in_which_everyone_may_have_spoken() -> None:
    """Also if a lease is much longer than the time after which a backup is silent."""
    assert Settings().longest_counted == Settings().longest_step == 0.25
    assert Settings(lease_ttl=10.0).longest_counted == 1.0 < Settings(lease_ttl=10.0).longest_step
    assert Settings(lease_ttl=10.0, prepare_timeout=0.3).longest_counted == 0.3 / 3
    assert Settings(lease_ttl=10.0, backup_timeout=0.3).longest_counted == 0.3 / 3
