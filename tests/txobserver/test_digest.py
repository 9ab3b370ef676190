"""The hash behind the queues' digests is part of what is stored: it is the same in plain Python and compiled."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from txobserver.digest import mix

NUMBERS = st.integers(0, (1 << 66) - 1)


@examples(200)
@given(NUMBERS, NUMBERS)
@example((1 << 63) - 1, (1 << 63) - 1)
@example(1 << 63, 0)
def test_the_same_whatever_computes_it(place: int, rid: int) -> None:
    value = (place * 0x9E3779B97F4A7C15 ^ rid * 0xC2B2AE3D27D4EB4F) % 2**64
    value = (value ^ value >> 29) * 0xBF58476D1CE4E5B9 % 2**64
    assert mix(place, rid) == value ^ value >> 32


def test_what_stores_hold_already() -> None:
    assert [mix(0, 0), mix(1 << 20, 1 << 40 | 1)] == [0, 0x897E06B905861261]
