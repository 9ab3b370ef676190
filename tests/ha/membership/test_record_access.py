"""When a node has reason to think that it cannot change the record, to the moment (``ha.membership.record_access``)."""

from __future__ import annotations

import math

from ha.membership.record_access import DOUBTED_LEASES, MOST_DOUBTED_LEASES, RecordAccess

LEASE = 0.5
NOTHING = math.inf


def at_100() -> RecordAccess:
    """A node that has read the record at 100 s."""
    access = RecordAccess(LEASE)
    access.read(100.0)
    return access


def test_one_that_has_read_nothing_yet_is_in_doubt() -> None:
    assert RecordAccess(LEASE).doubtful(NOTHING, 100.0)


def test_a_reading_is_good_for_a_lease() -> None:
    access = at_100()
    assert access.reads(100.5) and not access.doubtful(NOTHING, 100.5)
    assert not access.reads(100.51) and access.doubtful(NOTHING, 100.51)
    access.answered(True, 101.0)
    assert not access.doubtful(NOTHING, 101.5), "a change that was answered has read it as well"


def test_a_change_that_failed_is_doubted_for_a_while() -> None:
    access = at_100()
    access.failed(100.0)
    until = 100.0 + DOUBTED_LEASES * LEASE
    access.read(until)
    assert access.doubtful(NOTHING, until - 0.01) and not access.doubtful(NOTHING, until)


def test_another_change_that_is_answered_in_time_ends_the_doubt() -> None:
    access = at_100()
    access.failed(100.0)
    access.read(100.1)
    assert access.doubtful(NOTHING, 100.1), "readings may work where changes do not"
    access.answered(False, 100.1)
    assert access.doubtful(NOTHING, 100.1), "the lease was over by then"
    access.answered(True, 100.1)
    assert not access.doubtful(NOTHING, 100.1)


def doubted(access: RecordAccess, since: float) -> float:
    """For how many leases after ``since``, when the last change failed, it doubts itself."""
    leases = 0.5
    while access.read(since + leases * LEASE) or access.doubtful(NOTHING, since + leases * LEASE):
        leases += 0.5
    return leases


def test_the_doubt_doubles_with_each_failure_in_a_row() -> None:
    access, now, seen = at_100(), 100.0, []
    for _ in range(7):
        now += 5 * LEASE
        access.failed(now)
        access.answered(False, now)
        seen.append(doubted(access, now) / DOUBTED_LEASES)
    assert seen == [1, 2, 4, 8, 16, 16, 16] and MOST_DOUBTED_LEASES == 16 * DOUBTED_LEASES
    access.answered(True, now)
    access.failed(now)
    assert doubted(access, now) == DOUBTED_LEASES, "a lease that was kept ends the row"


def test_failures_within_a_lease_are_of_one_attempt() -> None:
    """A renewal that fails, and then the end of the lease that it was for."""
    access = at_100()
    access.failed(100.0)
    access.failed(100.49)
    assert doubted(access, 100.49) == DOUBTED_LEASES
    access.failed(100.99)
    assert doubted(access, 100.99) == 2 * DOUBTED_LEASES


def test_a_change_may_be_under_way_for_a_lease() -> None:
    access = at_100()
    access.read(100.6)
    assert not access.doubtful(100.1, 100.6) and access.doubtful(100.1, 100.61)
