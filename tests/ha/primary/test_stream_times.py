"""When the stream had got how far: how old the oldest event is that is owed."""

from __future__ import annotations

from ha.primary.stream_times import StreamTimes


def noted() -> StreamTimes:
    times = StreamTimes()
    for tail, now in ((5, 100.0), (5, 101.0), (8, 102.0), (9, 103.0)):
        times.note(tail, now)
    return times


def test_since_when_it_is_longer() -> None:
    times = noted()
    found = [times.since(acknowledged, 110.0) for acknowledged in (3, 4, 5, 7, 8, 9)]
    assert found == [100.0, 100.0, 102.0, 102.0, 103.0, 110.0]
    assert StreamTimes().since(3, 110.0) == 110.0
    assert len(times._notes) == 3, "while nothing comes, nothing is to be noted"


def test_what_is_owed_by_none_is_forgotten() -> None:
    times = noted()
    times.forget(5)
    assert times.since(3, 110.0) == 102.0
    times.forget(9)
    assert times.since(3, 110.0) == 110.0
    times.note(9, 111.0)
    assert times.since(8, 112.0) == 111.0


def test_time_that_is_passed_over_is_not_owed() -> None:
    times = noted()
    times.pass_over(8.0, 109.0)
    assert [times.since(each, 110.0) for each in (4, 5, 8)] == [108.0, 109.0, 109.0]
