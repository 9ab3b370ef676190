"""The hash behind the queues' digests is part of what is stored: it is the same in plain Python and compiled."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from txobserver import digest
from txobserver.digest import mix

NUMBERS = st.integers(0, (1 << 66) - 1)


@examples(200)
@given(NUMBERS, NUMBERS)
@example((1 << 63) - 1, (1 << 63) - 1)
@example(1 << 63, 0)
def test_the_same_whatever_computes_it(offset: int, rid: int) -> None:
    value = (offset * 0x9E3779B97F4A7C15 ^ rid * 0xC2B2AE3D27D4EB4F) % 2**64
    value = (value ^ value >> 29) * 0xBF58476D1CE4E5B9 % 2**64
    assert mix(offset, rid) == value ^ value >> 32


def test_what_stores_hold_already() -> None:
    assert [mix(0, 0), mix(1 << 20, 1 << 40 | 1)] == [0, 0x897E06B905861261]


class Wrapping(int):
    """An integer of 64 bits with a sign, as compiled code has it: what is too large begins again below."""

    def __new__(cls, value: int) -> Wrapping:
        return super().__new__(cls, (value + (1 << 63)) % (1 << 64) - (1 << 63))

    def __add__(self, other: int) -> Wrapping:
        return Wrapping(int(self) + other)

    def __mul__(self, other: int) -> Wrapping:
        return Wrapping(int(self) * other)

    def __xor__(self, other: int) -> Wrapping:
        return Wrapping(int(self) ^ other)

    def __rshift__(self, other: int) -> Wrapping:
        return Wrapping(int(self) >> other)

    def __and__(self, other: int) -> Wrapping:
        return Wrapping(int(self) & other)


BELOW = (1 << 62) - 1


@pytest.mark.plain
@pytest.mark.parametrize("offset", [0, 1, 1 << 20, 12345678901234567, BELOW, BELOW + 1, 1 << 63, (1 << 65) + 7])
@pytest.mark.parametrize("rid", [0, 1, 1 << 40 | 1, 98765432109876543, BELOW, BELOW + 1, 1 << 64])
def test_the_form_that_wraps_round_is_the_same(offset: int, rid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Python never takes that branch; here its integers are made to wrap."""
    plain = mix(offset, rid)
    multiplied: list[int] = []

    def made(value: int) -> Wrapping:
        multiplied.append(value)
        return Wrapping(value)

    monkeypatch.setattr(digest, "i64", made)
    monkeypatch.setattr(digest, "_LARGEST", Wrapping((1 << 63) - 1))
    assert mix(offset, rid) == plain
    assert (multiplied == [offset, rid]) == (max(offset, rid) <= BELOW), "what does not fit is not tried"
