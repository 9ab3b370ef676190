"""Which events count, and what each log can be held to: told from where its generations begin and end."""

from __future__ import annotations

import pytest

from recovery.pipeline.audit.stream import Reach, Span, Zone, stream_of

pytestmark = pytest.mark.slice


def reaches(*spans: Span) -> dict[str, Reach]:
    return {reach.node: reach for reach in stream_of(spans).reaches}


def test_the_longest_log_of_the_greatest_generation_is_the_stream() -> None:
    stream = stream_of([Span("a", 1, 1, 9), Span("b", 1, 1, 9), Span("b", 2, 10, 20), Span("c", 1, 1, 7)])
    assert stream.parts == (Span("b", 1, 1, 9), Span("b", 2, 10, 20))
    assert stream.reaches == (Reach("a", 1, 9, 9), Reach("b", 1, 20, 20), Reach("c", 1, 7, 7))
    assert stream.zones == [Zone(1, 7, ("a", "b", "c")), Zone(8, 9, ("a", "b")), Zone(10, 20, ("b",))]


def test_a_tail_that_a_later_generation_overwrote_is_left_out() -> None:
    found = reaches(Span("a", 1, 1, 12), Span("b", 1, 1, 9), Span("b", 2, 10, 20))
    assert found["a"] == Reach("a", 1, 9, 12) and found["a"].tail == 3


def test_a_generation_that_nobody_went_on_from_does_not_count() -> None:
    """b began generation 2 alone and fell; a went on from its own events of generation 1."""
    stream = stream_of([Span("a", 1, 1, 11), Span("a", 3, 12, 15), Span("b", 1, 1, 9), Span("b", 2, 10, 10)])
    assert [part.generation for part in stream.parts] == [1, 3]
    assert {reach.node: reach.tail for reach in stream.reaches} == {"a": 0, "b": 1}


def test_before_a_log_that_begins_behind_a_copy_another_one_speaks() -> None:
    stream = stream_of([Span("a", 2, 50, 90), Span("b", 1, 1, 9), Span("b", 2, 10, 60), Span("c", 1, 5, 8)])
    assert stream.parts == (Span("b", 1, 1, 9), Span("b", 2, 10, 49), Span("a", 2, 50, 90))
    assert stream.broken_at == ()


def test_logs_without_a_common_event_are_taken_one_behind_the_other_and_that_is_said() -> None:
    stream = stream_of([Span("a", 2, 50, 90), Span("b", 1, 1, 55)])
    assert stream.parts == (Span("b", 1, 1, 49), Span("a", 2, 50, 90))
    assert stream.broken_at == (50,)


def test_other_events_in_the_middle_of_a_log_are_compared_and_not_left_out() -> None:
    found = reaches(
        Span("a", 1, 1, 9), Span("a", 2, 10, 20), Span("a", 3, 21, 30), Span("b", 1, 1, 20), Span("b", 3, 21, 30)
    )
    assert found["b"] == Reach("b", 1, 30, 30)


def test_no_event_is_no_stream() -> None:
    with pytest.raises(ValueError, match="no event"):
        stream_of([])
