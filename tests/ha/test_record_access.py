"""When a node has reason to think that it cannot change the record, to the moment (``ha.record_access``)."""

from __future__ import annotations

import math

from ha.record_access import DOUBTED_LEASES, RecordAccess

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
    access.answered(101.0)
    assert not access.doubtful(NOTHING, 101.5), "a change that was answered has read it as well"


def test_a_change_that_failed_is_doubted_for_a_while() -> None:
    access = at_100()
    access.failed(100.0)
    until = 100.0 + DOUBTED_LEASES * LEASE
    access.read(until)
    assert access.doubtful(NOTHING, until - 0.01) and not access.doubtful(NOTHING, until)


def test_another_change_that_is_answered_ends_the_doubt() -> None:
    access = at_100()
    access.failed(100.0)
    access.read(100.1)
    assert access.doubtful(NOTHING, 100.1), "readings may work where changes do not"
    access.answered(100.1)
    assert not access.doubtful(NOTHING, 100.1)


def test_a_change_may_be_under_way_for_a_lease() -> None:
    access = at_100()
    access.read(100.6)
    assert not access.doubtful(100.1, 100.6) and access.doubtful(100.1, 100.61)
